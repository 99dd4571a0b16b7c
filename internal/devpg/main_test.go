package devpg

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childMode makes the test binary play the parent of a server, for the tests that kill it.
const childMode = "DEVPG_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childMode) != "" {
		os.Exit(runChild())
	}
	goleak.VerifyTestMain(m)
}

// report is what the child tells about its server, as one JSON line.
type report struct {
	RunDir  string `json:"run_dir"`
	URL     string `json:"url"`
	PID     int    `json:"pid"`
	Janitor int    `json:"janitor"`
}

// runChild starts a server, reports it and waits to be killed, or to be told to stop by the end of its standard input.
func runChild() int {
	server, err := Start(context.Background(), Options{DataDir: os.Getenv("DEVPG_TEST_DATA")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r := report{
		RunDir: server.runDir, URL: server.URL("postgres"),
		PID: server.PID(), Janitor: server.janitor.cmd.Process.Pid,
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
