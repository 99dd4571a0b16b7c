//go:build !linux

package s3test

import (
	"os/exec"
	"testing"
)

// OnSmallDisk fails: only Linux lets anybody mount a disk.
func OnSmallDisk(tb testing.TB, _ string, _ int64, _ ...string) *exec.Cmd {
	tb.Helper()
	tb.Fatal("a small disk needs Linux")
	return nil
}
