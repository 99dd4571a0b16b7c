package app

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"sexton/internal/config"
	"sexton/internal/devpg"
	"sexton/internal/sample"
)

// demoPlace is where a demo's files are.
type demoPlace struct {
	// kept is the folder that stays; empty where everything goes with the server.
	kept string
	// found tells that an earlier demo has been here.
	found bool
}

// openDemoPlace refuses a folder in which anything but a demo is.
func openDemoPlace(kept string) (demoPlace, error) {
	if kept == "" {
		return demoPlace{}, nil
	}
	dir, err := filepath.Abs(kept)
	if err != nil {
		return demoPlace{}, fmt.Errorf("resolve --keep: %w", err)
	}
	p := demoPlace{kept: dir}
	if _, err := os.Stat(filepath.Join(p.dataDir(), "PG_VERSION")); err == nil {
		p.found = true
		return p, nil
	}
	// The server's user has to pass through it.
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return p, fmt.Errorf("create the demo's folder: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return p, fmt.Errorf("read the demo's folder: %w", err)
	}
	if len(entries) > 0 {
		return p, usageError{fmt.Errorf("--keep: folder %q holds other files: choose an empty or a new one", dir)}
	}
	return p, nil
}

func (p demoPlace) dataDir() string {
	if p.kept == "" {
		return ""
	}
	return filepath.Join(p.kept, "data")
}

// write puts the configuration and the definitions where they live as long as the server, and returns the
// path of the former. Files of an earlier demo stay as they are.
func (p demoPlace) write(server *devpg.Server) (string, error) {
	dir := p.kept
	if dir == "" {
		dir = server.SocketDir()
	}
	path := filepath.Join(dir, config.DefaultFile)
	if p.found {
		return path, nil
	}
	text := fmt.Sprintf(`# The demo's configuration.
databases:
  main: {url: %q}
loose_foreign_keys:
  schedule: "@every 10s"
  definitions: [loose_foreign_keys.yml]
`, server.URL(demoDatabase))
	for name, content := range map[string]string{path: text, filepath.Join(dir, "loose_foreign_keys.yml"): sample.Definitions()} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil { //nolint:gosec // nothing secret is in it
			return "", fmt.Errorf("write the demo's configuration: %w", err)
		}
	}
	return path, nil
}

// tell says how to go on with a cluster that is kept.
func (p demoPlace) tell(w io.Writer, server *devpg.Server) {
	if p.kept == "" {
		return
	}
	quoted := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	start := fmt.Sprintf("%s -D %s -l %s -w start",
		quoted(filepath.Join(server.BinDir(), "pg_ctl")), quoted(server.DataDir()), quoted(filepath.Join(server.DataDir(), "pg_ctl.log")))
	if server.User() != "" {
		start = "runuser -u " + server.User() + " -- " + start
	}
	_, _ = fmt.Fprintf(w, `
The cluster is kept. Go on with it:
  sexton demo --keep %s
or start its server, look, and run a worker:
  %s
  psql '%s'
  sexton run --config %s
`, quoted(p.kept), start, server.URL(demoDatabase), quoted(filepath.Join(p.kept, config.DefaultFile)))
}
