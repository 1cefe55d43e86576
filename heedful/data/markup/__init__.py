"""Text with markup: what is protected from translation, tags that are taken out, and where both go afterwards."""
