"""Files, read and written once for all: states, arrays, hostile bytes, private writes, TOML. Import its modules."""
