package check

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/installation"
	"sexton/internal/loosefk"
	"sexton/internal/loosefk/orphans"
	"sexton/internal/problem"
	"sexton/internal/render"
	riverjobs "sexton/river_jobs"
)

// auditDocument is the output of `sexton audit --json`.
type auditDocument struct {
	OrphanedKeys int64               `json:"orphaned_keys"`
	OrphanedRows int64               `json:"orphaned_rows"`
	RepairedKeys int64               `json:"repaired_keys"`
	Definitions  []auditedDefinition `json:"definitions"`
}

// auditedDefinition is the result for one definition in auditDocument.
type auditedDefinition struct {
	Database       string `json:"database"`
	orphans.Report        //nolint:embeddedstructfieldcheck // the order is that of the document
}

// auditRequest holds the flags of `sexton audit`.
type auditRequest struct {
	database, table string
	repair          bool
}

// child parses the value of --table in the same way as a table name in definitions.
func (r auditRequest) child() (name definitions.Name, err error) {
	if r.table == "" {
		return name, nil
	}
	if name, err = definitions.ParseName(r.table); err != nil {
		return name, cli.Usage(fmt.Errorf("--table %s %w", r.table, err))
	}
	return name, nil
}

// databases returns the databases whose parents are audited. It returns an error if the
// database that --database names cannot be reached.
func (r auditRequest) databases(all *installation.Bound) ([]database.Database, error) {
	if r.database == "" {
		return all.Databases, nil
	}
	name, err := cli.ChooseDatabase(all.Config, r.database)
	return []database.Database{all.Database(name)}, cmp.Or(err, all.Down[name])
}

func auditCommand(env *cli.Env) *cobra.Command {
	var request auditRequest
	cmd := env.JSONCommand(&cobra.Command{
		Use:   "audit",
		Short: "Find children that have neither a parent nor a tombstone; exits 5 if there are any",
		Long: `Reads the children of every definition in small statements and reports orphans: rows without a
parent and without a pending tombstone, so that no run will find them. They come from deletions
before the triggers were installed, from statements that fire no trigger (DROP TABLE, DETACH
PARTITION), or from an application that inserts children of missing parents. Children in another
database are checked there. If a database cannot be reached, its definitions are left out, and
the exit code is 4.

--repair inserts a tombstone for each orphaned key, as the parent's trigger would have, and wakes
the workers, which delete or change the children. If several definitions find a key, it is counted
for the first of them. Read the report first. Do not repair while children are loaded before their
parents, or if keys of deleted parents are used again: while the tombstone of a key is pending, rows
that are inserted with this key before its new parent are deleted.`,
		Example: "  sexton audit\n  sexton audit --table issues --json\n  sexton audit --repair",
	}, func(ctx context.Context, _ []string) error { return audit(ctx, env, request) })
	cmd.Flags().StringVar(&request.database, "database", "", "`NAME` of the database (default: all)")
	cmd.Flags().StringVar(&request.table, "table", "", "only definitions of this `CHILD`, named as in definitions")
	cmd.Flags().BoolVar(&request.repair, "repair", false, "insert tombstones for orphaned keys")
	return cmd
}

func audit(ctx context.Context, env *cli.Env, request auditRequest) error {
	child, err := request.child()
	if err != nil {
		return err
	}
	return env.WithBound(ctx, riverjobs.LooseForeignKeys, installation.BindReachable,
		func(all *installation.Bound) error {
			databases, err := request.databases(all)
			if err != nil {
				return err
			}
			if err := checkChild(all, child); err != nil {
				return err
			}
			document := auditDocument{Definitions: []auditedDefinition{}}
			for _, db := range databases {
				auditor := orphans.Auditor{
					DB: db.Pool, Remotes: all.Remotes(db), Names: db.Names,
					Bounds: installation.BoundsOf(all.Connections), Batch: orphans.Batch, Repair: request.repair,
					Wake: installation.WakeLooseForeignKeys,
				}
				for _, one := range audited(all, db, child) {
					report, err := auditor.Audit(ctx, one.parent, one.reference)
					if report.RepairedKeys > 0 {
						env.Logger(all.Config).InfoContext(ctx, "orphans_repaired", "database", db.Name, "actor",
							installation.Actor(),
							"definition", report.Definition, "parent", report.Parent, "repaired_keys",
							report.RepairedKeys)
					}
					if err != nil {
						return err
					}
					document.add(db.Name, report)
				}
			}
			if err := env.Print(document, func(w io.Writer) { document.print(w, request.repair) }); err != nil {
				return err
			}
			return document.verdict(request, all.Complete())
		})
}

// pair is a definition to audit: a reference and its parent.
type pair struct {
	parent    *loosefk.Parent
	reference *loosefk.Reference
}

// audited returns the definitions whose parents are in the given database. If child is
// set, it returns only the definitions with that child table.
func audited(b *installation.Bound, db database.Database, child definitions.Name) []pair {
	var pairs []pair
	for _, parent := range b.Parents[db.Name] {
		for _, reference := range parent.References {
			table := reference.Child
			if child.Table == "" || child.Table == table.Name &&
				cmp.Or(child.Schema, b.DefaultSchema(reference.Database)) == table.Schema {
				pairs = append(pairs, pair{parent: parent, reference: reference})
			}
		}
	}
	return pairs
}

// checkChild returns an error if no definition has the child table, because an audit of
// no definitions would look successful.
func checkChild(b *installation.Bound, child definitions.Name) error {
	if child.Table == "" {
		return nil
	}
	var names []string
	for _, db := range b.Databases {
		if len(audited(b, db, child)) > 0 {
			return nil
		}
		for _, one := range audited(b, db, definitions.Name{}) {
			names = append(names, one.reference.Child.Label())
		}
	}
	for _, d := range b.Definitions {
		if d.Child == child {
			return nil
		}
		names = append(names, d.Child.String())
	}
	return cli.Usage(fmt.Errorf("no definition has the child table %s%s", child, problem.Suggestion(child.String(), names)))
}

func (d *auditDocument) add(name string, report orphans.Report) {
	d.Definitions = append(d.Definitions, auditedDefinition{Database: name, Report: report})
	d.OrphanedKeys += report.OrphanedKeys
	d.OrphanedRows += report.OrphanedRows
	d.RepairedKeys += report.RepairedKeys
}

// verdict returns the error that determines the exit code. down is the error of an
// unreachable database. The definitions of that database are missing from the document.
func (d *auditDocument) verdict(request auditRequest, down error) error {
	incomplete, skipped := 0, 0
	for _, one := range d.Definitions {
		switch {
		case one.Skipped != "":
			skipped++
		case one.Error != "" || one.UncheckedKeys > 0:
			incomplete++
		}
	}
	switch {
	case incomplete == 0 && down != nil && (skipped > 0 || request.database == ""):
		return down
	case skipped > 0:
		return fmt.Errorf("%s could not be audited", render.Counted(incomplete+skipped, "definition"))
	case incomplete > 0:
		return fmt.Errorf("%s could not be audited completely", render.Counted(incomplete, "definition"))
	case d.OrphanedKeys > 0 && !request.repair:
		return cli.ErrFindings
	default:
		return nil
	}
}

func (d *auditDocument) print(w io.Writer, repaired bool) {
	var capped bool
	const heading = "DATABASE\tCHILD\tCOLUMN\tPARENT\tKEYS\tORPHANED\tROWS\tREMARKS"
	render.Table(w, heading, d.Definitions, func(d auditedDefinition) []any {
		capped = capped || d.RowsCapped
		return []any{
			d.Database, cli.ChildText(d.Child, d.ChildDatabase), d.Column, d.Parent, d.CheckedKeys, d.OrphanedKeys,
			render.Capped(d.OrphanedRows, d.RowsCapped), d.remarks(),
		}
	})
	inserted := ""
	if repaired {
		inserted = fmt.Sprintf(", %s inserted", render.Counted(d.RepairedKeys, "tombstone"))
	}
	_, _ = fmt.Fprintf(w, "%s%s of %s%s\n", render.AtLeast(capped), render.Counted(d.OrphanedRows, "row"),
		render.Counted(d.OrphanedKeys, "orphaned key"), inserted)
}

// remarks returns samples of orphaned keys, and the reasons why the audit of the
// definition is incomplete.
func (d auditedDefinition) remarks() string {
	var remarks []string
	if len(d.Samples) > 0 {
		remarks = append(remarks, "such as "+render.Listed(d.Samples))
	}
	if d.UncheckedKeys > 0 {
		remarks = append(remarks, render.Counted(d.UncheckedKeys, "key")+
			" not checked: they take longer than the statement timeout")
	}
	if d.Skipped != "" {
		remarks = append(remarks, "skipped: "+d.Skipped)
	}
	if d.Error != "" {
		remarks = append(remarks, "failed: "+d.Error)
	}
	joined := strings.Join(remarks, "; ")
	return render.Cell(&joined)
}
