//go:build !linux

package s3test

import (
	"os/exec"
	"syscall"
	"testing"
)

func setDeathSignal(*syscall.SysProcAttr) {}

// OnSmallDisk fails: only Linux lets anybody mount a disk.
func OnSmallDisk(tb testing.TB, folder string, bytes int64, args ...string) *exec.Cmd {
	return onSmallDisk(tb, folder, bytes, args)
}

func onSmallDisk(tb testing.TB, _ string, _ int64, _ []string) *exec.Cmd {
	tb.Helper()
	tb.Fatal("a small disk needs Linux")
	return nil
}
