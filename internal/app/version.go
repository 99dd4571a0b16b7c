package app

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"sexton/internal/migrate"
)

// version is that of a release, set by the linker: -ldflags "-X sexton/internal/app.version=v1.2.3".
var version string

// versions is the output of `sexton version --json`.
type versions struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	River   string `json:"river"`
	// Schema is the newest version of each component that this binary brings.
	Schema []migrate.Latest `json:"schema"`
}

func (a *app) versionCommand() *cobra.Command {
	return a.reports(&cobra.Command{
		Use:     "version",
		Short:   "Print the versions of Sexton, Go, River and the schema",
		Example: "  sexton version --json",
		Args:    noArguments,
		RunE: a.run(func(*cobra.Command, []string) error {
			v := readVersions()
			if a.json {
				return a.printJSON(v)
			}
			a.printf("sexton %s (%s, river %s)\n", v.Version, v.Go, v.River)
			for _, component := range v.Schema {
				a.printf("schema %s %d\n", component.Component, component.Version)
			}
			return nil
		}),
	})
}

func readVersions() versions {
	v := versions{Version: cmp.Or(version, "unknown"), Go: runtime.Version(), River: "unknown", Schema: migrate.Versions()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = cmp.Or(version, info.Main.Version)
	for _, module := range info.Deps {
		if module.Path == "github.com/riverqueue/river" {
			v.River = module.Version
		}
	}
	return v
}
