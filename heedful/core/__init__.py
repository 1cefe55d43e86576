"""What all of heedful builds on: errors, checked input, files, progress, plug-ins."""
