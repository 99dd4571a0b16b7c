package check

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/config"
	"sexton/internal/definitions"
	"sexton/internal/installation"
	"sexton/internal/problem"
	"sexton/internal/render"
)

func configCommand(env *cli.Env) *cobra.Command {
	return cli.Group("config", "Check or show the configuration", "  sexton config check\n  sexton config show",
		configCheckCommand(env), configShowCommand(env), configSchemaCommand(env))
}

// checkedConfig is the output of `sexton config check --json`.
type checkedConfig struct {
	Databases   int            `json:"databases"`
	Definitions int            `json:"definitions"`
	Problems    []foundProblem `json:"problems"`
}

// foundProblem is an error or a warning about the configuration or the definitions.
type foundProblem struct {
	Severity problem.Severity `json:"severity"`
	File     string           `json:"file,omitempty"`
	Line     int              `json:"line,omitempty"`
	Column   int              `json:"column,omitempty"`
	Key      string           `json:"key,omitempty"`
	Message  string           `json:"message"`
	Fix      string           `json:"fix,omitempty"`
}

func configCheckCommand(env *cli.Env) *cobra.Command {
	var connect bool
	cmd := env.JSONCommand(&cobra.Command{
		Use:   "check",
		Short: "Validate configuration and definitions; exits 2 and lists all errors",
		Long: `Validates the configuration and the definitions, and lists all errors with file, line and column.
It connects to no database. --connect also looks for missing tables and columns in the databases.
Sexton need not be installed there.`,
		Example: "  sexton config check\n  sexton config check --connect\n  sexton config check --config sexton.yaml --json",
	}, func(ctx context.Context, _ []string) error {
		c, err := env.LoadConfig()
		problems, _ := errors.AsType[problem.List](err)
		var defs []definitions.Definition
		if c != nil && !concerns(problems, "loose_foreign_keys") {
			defs, err = installation.LoadDefinitions(c)
			found, _ := errors.AsType[problem.List](err)
			problems.Add(found...)
		}
		if connect && c != nil && problems.Err() == nil {
			all, err := installation.Open(ctx, c)
			if err != nil {
				return err
			}
			defer all.Close()
			found, err := all.CheckShapes(ctx, defs)
			if err != nil {
				return err
			}
			problems.Add(found...)
			for _, one := range found.Only(problem.Warning) {
				if !env.JSON {
					env.Warn(one)
				}
			}
		}
		wrong := problems.Err()
		document := checkedConfig{Definitions: len(defs), Problems: []foundProblem{}}
		if c != nil {
			document.Databases = len(c.Databases)
		}
		for _, p := range problems {
			document.Problems = append(document.Problems,
				foundProblem{p.Severity, p.Position.File, p.Position.Line, p.Position.Column, p.Key, p.Message, p.Fix})
		}
		if wrong != nil && !env.JSON {
			return wrong
		}
		return cmp.Or(env.PrintText(document, "ok: %s, %s\n",
			render.Counted(document.Databases, "database"), render.Counted(len(defs), "definition")), wrong)
	})
	cmd.Flags().BoolVar(&connect, "connect", false, "also compare with the databases")
	return cmd
}

// concerns reports whether one of the problems is in the given section.
func concerns(problems problem.List, section string) bool {
	return slices.ContainsFunc(problems, func(p problem.Problem) bool {
		return strings.HasPrefix(strings.ToLower(p.Key),
			section)
	})
}

func configShowCommand(env *cli.Env) *cobra.Command {
	var all bool
	cmd := env.JSONCommand(&cobra.Command{
		Use:   "show",
		Short: "Print the effective configuration with defaults and without secrets",
		Long: `Prints each key with its value. It connects to no database and needs no database URL. For a
disabled component, it prints only that it is disabled, unless --all is given.`,
		Example: "  sexton config show\n  sexton config show --all",
	}, func(_ context.Context, _ []string) error {
		env.WithoutURL = true
		c, err := env.LoadConfig()
		if err != nil {
			return err
		}
		shown := c.Show()
		if !all {
			shown = shown.Enabled()
		}
		return env.PrintText(shown, "%s", shown.YAML())
	})
	cmd.Flags().BoolVar(&all, "all", false, "also print the keys of disabled components")
	return cmd
}

func configSchemaCommand(env *cli.Env) *cobra.Command {
	var ofDefinitions bool
	cmd := env.JSONCommand(&cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of sexton.yaml or of definition files, for editors",
		Long: `Prints a JSON schema. Editors use it to complete and explain keys and to mark errors. Editors with
the YAML language server find it if the file begins with a line such as "# yaml-language-server:
$schema=sexton.schema.json".`,
		Example: "  sexton config schema > sexton.schema.json\n  sexton config schema --definitions > definitions.schema.json",
	}, func(_ context.Context, _ []string) error {
		if ofDefinitions {
			return env.PrintJSON(definitions.Schema)
		}
		return env.PrintJSON(config.Schema)
	})
	cmd.Flags().BoolVar(&ofDefinitions, "definitions", false, "print the schema of definition files")
	return cmd
}
