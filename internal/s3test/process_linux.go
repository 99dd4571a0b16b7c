package s3test

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
)

// OnSmallDisk returns a command for which the folder is a memory disk of the given size,
// with an empty folder "diffs" on it. The command has its own user and mount namespace,
// in which any user may mount a disk. The disk disappears with the process.
func OnSmallDisk(tb testing.TB, folder string, bytes int64, args ...string) *exec.Cmd {
	script := `mount -t tmpfs -o mode=0700,size="$1" tmpfs "$2" && mkdir "$2/diffs" && shift 2 && exec "$@"`
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), "/bin/sh",
		append([]string{"-c", script, "sh", strconv.FormatInt(bytes, 10), folder}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	return cmd
}

// spawn starts a program. The kernel kills the program if this process ends or is killed.
// The signal is tied to the thread that forked, so one goroutine keeps its thread from
// fork to wait. The channel ended is closed when the program has ended.
func spawn(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	done, started := make(chan struct{}), make(chan error)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	return done, <-started
}
