package check

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/doctor"
	"sexton/internal/operator"
	"sexton/internal/problem"
	"sexton/internal/render"
)

func doctorCommand(env *cli.Env) *cobra.Command {
	var role string
	cmd := env.JSONCommand(&cobra.Command{
		Use:   "doctor",
		Short: "Find problems in an installation and print fixes; exits 5 if there are any",
		Long: `Checks connections, server, settings, privileges, schema, definitions, indexes, triggers,
notifications and workers, and prints a fix for each finding. A failed check does not stop the
others. It changes nothing.

Privileges are checked for the role that --role names, else for the role of the newest running
worker, else for the role of the configured URL. Session settings are checked only for the role of
the URL.

The exit code is 5 after an error or a warning, 4 if no database can be reached, and 0 otherwise.
If only some databases can be reached, the checks of the others are skipped.`,
		Example: "  sexton doctor\n  sexton doctor --role sexton_worker\n  sexton doctor --json | jq -r '.findings[].fix'",
	}, func(ctx context.Context, _ []string) error {
		c, err := env.LoadConfig()
		if err != nil {
			return err
		}
		x := operator.Examine(ctx, c, role)
		defer x.Close()
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := env.Print(x.Report, func(w io.Writer) { printExamination(w, x.Report) }); err != nil {
			return err
		}
		switch {
		case len(x.Databases) == 0:
			return x.Unreachable
		case x.Report.Sick():
			return cli.ErrFindings
		}
		return nil
	})
	cmd.Flags().StringVar(&role, "role", "",
		"check the privileges of this `ROLE` (default: see above)")
	return cmd
}

// printExamination prints each finding with its fix, and then the number of checks and
// findings.
func printExamination(w io.Writer, report *doctor.Report) {
	for _, database := range slices.Sorted(maps.Keys(report.Roles)) {
		role := report.Roles[database]
		_, _ = fmt.Fprintf(w, "%s: checking the privileges of role %s, %s\n", database, role.Name, role.Source)
	}
	for _, f := range report.Findings {
		place := f.Check
		if f.Database != "" {
			place = f.Database + " " + place
		}
		_, _ = fmt.Fprintf(w, "%s: %s: %s: %s\n  fix: %s\n", f.Severity, place, f.Object, render.Cell(&f.Message),
			render.Cell(&f.Fix))
	}
	skipped, n := "", 0
	for _, check := range report.Checks {
		if check.Result == doctor.Skipped {
			n++
			skipped = fmt.Sprintf("; %d skipped", n)
		}
	}
	_, _ = fmt.Fprintf(w, "%s: %s, %s, %d informational%s\n", render.Counted(len(report.Checks), "check"),
		render.Counted(report.Count(problem.Error), "error"),
		render.Counted(report.Count(problem.Warning), "warning"), report.Count(problem.Info), skipped)
}
