package app

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/definitions"
	"sexton/internal/problem"
)

func (a *app) configCommand() *cobra.Command {
	return group("config", "Check or show the configuration, without connecting", "  sexton config check\n  sexton config show",
		a.configCheckCommand(), a.configShowCommand())
}

// checkedConfig is the output of `sexton config check --json`.
type checkedConfig struct {
	Databases   int `json:"databases"`
	Definitions int `json:"definitions"`
}

func (a *app) configCheckCommand() *cobra.Command {
	return a.reports(&cobra.Command{
		Use:     "check",
		Short:   "Validate configuration and definitions; exits 2 and lists everything that is wrong",
		Example: "  sexton config check --config sexton.yaml",
		Args:    noArguments,
		RunE: a.run(func(*cobra.Command, []string) error {
			c, err := a.loadConfig()
			problems, _ := errors.AsType[problem.List](err)
			var defs []definitions.Definition
			if c != nil && !concerns(problems, "loose_foreign_keys") {
				defs, err = loadDefinitions(c)
				found, _ := errors.AsType[problem.List](err)
				problems.Add(found...)
			}
			if err := problems.Err(); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(checkedConfig{Databases: len(c.Databases), Definitions: len(defs)})
			}
			a.printf("ok: %s, %s\n", counted(len(c.Databases), "database"), counted(len(defs), "definition"))
			return nil
		}),
	})
}

// concerns reports whether one of the findings is about the section.
func concerns(problems problem.List, section string) bool {
	return slices.ContainsFunc(problems, func(p problem.Problem) bool { return strings.HasPrefix(strings.ToLower(p.Key), section) })
}

func (a *app) configShowCommand() *cobra.Command {
	return a.reports(&cobra.Command{
		Use:     "show",
		Short:   "Print the effective configuration, defaults included, secrets hidden",
		Example: "  sexton config show",
		Args:    noArguments,
		RunE: a.run(func(*cobra.Command, []string) error {
			c, err := a.loadConfig()
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(c.Show())
			}
			_, err = a.stdout.Write(c.Show().YAML())
			return err
		}),
	})
}
