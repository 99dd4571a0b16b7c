package devpg

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

//go:embed janitor.sh
var janitorScript string

// janitor is a shell that outlives this process and cleans up after it. It runs in its own session, out of reach of the terminal's
// signals, and as the caller's user, who may remove the run folder.
type janitor struct {
	cmd  *exec.Cmd
	pipe *os.File
}

func startJanitor(runDir, dataDir string) (*janitor, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("create pipe to janitor: %w", err)
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", janitorScript, "sexton-janitor", runDir, dataDir)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/bin:/bin"}
	cmd.Stdin = r
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("start janitor: %w", err)
	}
	return &janitor{cmd: cmd, pipe: w}, nil
}

// watch names the process to end if this one dies. Only the last one named counts.
func (j *janitor) watch(pid int) error {
	if _, err := j.pipe.WriteString(strconv.Itoa(pid) + "\n"); err != nil {
		return fmt.Errorf("tell janitor about process: %w", err)
	}
	return nil
}

// dismiss closes the pipe and waits for the janitor, who finds nothing left to do after an orderly stop.
func (j *janitor) dismiss() error {
	j.pipe.Close()
	if err := j.cmd.Wait(); err != nil {
		return fmt.Errorf("wait for janitor: %w", err)
	}
	return nil
}
