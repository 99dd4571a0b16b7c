//go:build !linux

package pgtest

import "errors"

const keeperVariable = "SEXTON_TEST_KEEPER"

// useMemory does nothing: only Linux has a file system in memory that needs no set-up.
func useMemory() {}

// joinRun finds no server: it needs Linux's view of processes.
func joinRun() (string, error) { return "", nil }

func keep(string) error { return errors.ErrUnsupported }
