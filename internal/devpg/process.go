package devpg

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a running child that dies with this process where the system can do that.
type process struct {
	pid  int
	cmd  *exec.Cmd
	done chan struct{}
	err  error // result of Wait, valid once done is closed
}

// startProcess starts cmd and waits for it in the background. The kernel's parent-death signal belongs to the thread that forked,
// not to the process, and the runtime may end idle threads: so one goroutine keeps its thread locked from fork to wait. It never
// unlocks, which makes the runtime end that thread afterwards.
func startProcess(cmd *exec.Cmd) (*process, error) {
	setDeathSignal(cmd.SysProcAttr)
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// end asks the process to end by signal and waits. A server that does not obey in time is ended harder.
func (p *process) end(signal syscall.Signal) error {
	steps := []struct {
		signal  syscall.Signal
		timeout time.Duration
	}{
		{signal, fastStopTimeout},
		{syscall.SIGQUIT, hardStopTimeout},
		{syscall.SIGKILL, hardStopTimeout},
	}
	for _, step := range steps {
		// An error means that the process has ended already, which the wait below sees.
		_ = p.cmd.Process.Signal(step.signal)
		timer := time.NewTimer(step.timeout)
		select {
		case <-p.done:
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
	return fmt.Errorf("stop postgres: process %d survived SIGKILL", p.pid)
}
