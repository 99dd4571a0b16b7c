package demo

import (
	"fmt"
	"os"
	"path/filepath"

	"sexton/internal/config"
	"sexton/internal/exampleapp"
)

// demoObjects is the name of the folder for moved diffs. It is in the folder of the
// configuration.
const demoObjects = "diffs"

// writeConfiguration writes a configuration and a definition file to dir, and creates the
// folder for moved diffs. It returns the path of the configuration.
func writeConfiguration(url, dir string) (string, error) {
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
	for name, content := range map[string]string{
		path: text,
		filepath.Join(dir, "loose_foreign_keys.yml"): exampleapp.Definitions(),
	} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil { //nolint:gosec // it has no secrets
			return "", fmt.Errorf("write the demo's configuration: %w", err)
		}
	}
	return path, nil
}
