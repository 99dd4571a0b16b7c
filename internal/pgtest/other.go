//go:build !linux

package pgtest

import "errors"

const keeperVariable = "SEXTON_TEST_KEEPER"

// useMemory does nothing, because only Linux has a file system in memory that needs no
// setup.
func useMemory() {}

// joinRun returns no server, because finding the go command needs Linux's /proc.
func joinRun() (string, error) { return "", nil }

func keep(string) error { return errors.ErrUnsupported }
