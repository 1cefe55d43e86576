"""The special tokens of every vocabulary, and their ids.

The ids are the same in every tokenizer: models, masks, batches and searches rely on them. `Tokenizer` checks them when
it is opened, and an import gives a foreign vocabulary these ids.
"""

PAD, UNKNOWN, START, END, MASK = "[PAD]", "[UNK]", "[START]", "[END]", "[MASK]"
SPECIAL = (PAD, UNKNOWN, START, END)  # in the order of their ids; [MASK] has an id of its own where there is one
PAD_ID, UNKNOWN_ID, START_ID, END_ID = range(len(SPECIAL))
FIRST_ID = len(SPECIAL)  # the first id of an ordinary token
