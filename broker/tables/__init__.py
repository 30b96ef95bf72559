"""The broker's tables: topics, groups, offsets and others, which it saves under `config/`."""
