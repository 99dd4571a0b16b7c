package cli

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"

	"sexton/internal/migrate"
)

// version is the version of a release. The linker sets it: -ldflags "-X
// sexton/internal/cli.version=v1.2.3". Other builds leave it empty.
var version string

// release is the version in the newest section of CHANGELOG.md. A build without version
// has this version, followed by the commit if it is known.
const release = "v0.1.0"

// Versions is the output of `sexton version --json`.
type Versions struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	River   string `json:"river"`
	// Schema lists the newest schema version of each component in this binary.
	Schema []migrate.Latest `json:"schema"`
}

// ReadVersions returns the versions of this binary from its build information.
func ReadVersions() Versions {
	v := Versions{
		Version: cmp.Or(version, release), Go: runtime.Version(), River: "unknown",
		Schema: migrate.Versions(),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	commit, untagged := strings.CutPrefix(info.Main.Version, "v0.0.0-")
	switch {
	case version != "":
	case untagged:
		v.Version += "+" + strings.ReplaceAll(commit, "+", ".")
	case strings.HasPrefix(info.Main.Version, "v"):
		v.Version = info.Main.Version
	}
	for _, module := range info.Deps {
		if module.Path == "github.com/riverqueue/river" {
			v.River = module.Version
		}
	}
	return v
}
