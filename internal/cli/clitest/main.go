package clitest

import (
	"os"
	"slices"
	"testing"

	"sexton/internal/cli/root"
	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

// Main runs the tests of a package. If AsProgram is in the environment, it runs the
// program instead.
func Main(m *testing.M) {
	if slices.Contains(os.Environ(), AsProgram) {
		os.Exit(root.Main(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
	}
	s3test.Prepare()
	pgtest.Main(m)
}
