//go:build !linux

package s3test

import (
	"os/exec"
	"testing"
)

// OnSmallDisk fails the test, because only Linux allows any user to mount a disk.
func OnSmallDisk(tb testing.TB, _ string, _ int64, _ ...string) *exec.Cmd {
	tb.Helper()
	tb.Fatal("a small disk needs Linux")
	return nil
}

// spawn starts a program. The channel ended is closed when the program has ended.
func spawn(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	done := make(chan struct{})
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	return done, nil
}
