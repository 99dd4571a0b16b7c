package demo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sexton/internal/cli"
	"sexton/internal/config"
	"sexton/internal/devpg"
	"sexton/internal/exampleapp"
)

// demoObjects is the folder beside the configuration to which diffs are moved.
const demoObjects = "diffs"

// demoPlace is where a demo's files are.
type demoPlace struct {
	// kept is the folder that stays; empty where everything goes with the server.
	kept string
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
		return p, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p, fmt.Errorf("read the demo's folder: %w", err)
	}
	for _, entry := range entries {
		// A demo that was interrupted early leaves these.
		if name := entry.Name(); name != "data" && !strings.HasPrefix(name, "data.new-") {
			return p, cli.Usage(fmt.Errorf("--keep: folder %q holds other files, such as %s: choose an empty or a new one", dir, name))
		}
	}
	return p, nil
}

func (p demoPlace) dataDir() string {
	if p.kept == "" {
		return ""
	}
	return filepath.Join(p.kept, "data")
}

// write puts the configuration, the definitions and a folder for diffs where they live as long as the server, and returns the
// path of the first. What a reader has changed in kept ones stays, unless the folder has been moved.
func (p demoPlace) write(url, socketDir string) (string, error) {
	dir := p.kept
	if dir == "" {
		dir = socketDir
	}
	if err := os.MkdirAll(filepath.Join(dir, demoObjects), 0o750); err != nil {
		return "", fmt.Errorf("create the demo's folder for diffs: %w", err)
	}
	path := filepath.Join(dir, config.DefaultFile)
	text := fmt.Sprintf(`# The demo's configuration.
databases:
  main: {url: %q}
loose_foreign_keys:
  schedule: "@every 10s"
  definitions: [loose_foreign_keys.yml]
  undo: {keep: 24h, tables: [projects]}
ghost_users: {enabled: true, schedule: "@every 10s", retry_after: 10s}
placeholder_users: {enabled: true, schedule: "@every 10s", spacing: 10ms}
adjourned_groups: {enabled: true, schedule: "@every 10s", spacing: 10ms}
external_diffs: {enabled: true, schedule: "@every 10s", when: always, limit: 10000, bucket: %q}
`, url, "file://"+filepath.ToSlash(filepath.Join(dir, demoObjects)))
	if there, err := os.ReadFile(path); err == nil && strings.Contains(string(there), url) {
		return path, nil
	}
	for name, content := range map[string]string{path: text, filepath.Join(dir, "loose_foreign_keys.yml"): exampleapp.Definitions()} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil { //nolint:gosec // nothing secret is in it
			return "", fmt.Errorf("write the demo's configuration: %w", err)
		}
	}
	return path, nil
}

func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// tell says how to go on with a cluster that is kept.
func (p demoPlace) tell(w io.Writer, server *devpg.Server) {
	if p.kept == "" {
		return
	}
	start := fmt.Sprintf("%s -D %s -l %s -w start",
		shellQuoted(filepath.Join(server.BinDir(), "pg_ctl")), shellQuoted(server.DataDir()), shellQuoted(filepath.Join(server.DataDir(), "pg_ctl.log")))
	if server.User() != "" {
		start = "runuser -u " + server.User() + " -- " + start
	}
	_, _ = fmt.Fprintf(w, `
The cluster is kept. Continue with it:
  sexton demo --keep %s
or start its server, query it, and run a worker:
  %s
  psql '%s'
  sexton run --config %s
`, shellQuoted(p.kept), start, server.URL(demoDatabase), shellQuoted(filepath.Join(p.kept, config.DefaultFile)))
}
