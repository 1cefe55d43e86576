"""Serve runs over HTTP: LibreTranslate's, DeepL's and OpenAI's interfaces, and heedful's own."""
