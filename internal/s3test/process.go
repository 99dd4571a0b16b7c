package s3test

import (
	"os/exec"
	"runtime"
	"syscall"
)

// start runs a command that the kernel ends with this process, even where that is killed. The signal belongs to the thread that
// forked, so a goroutine keeps it; see devpg.
func start(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	setDeathSignal(cmd.SysProcAttr)
	started, done := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(done)
	}()
	return done, <-started
}
