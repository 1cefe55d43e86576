"""What the verbs of the command line do; imported only when one is called, so that `heedful --help` is instant."""
