package components

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/doctor"
	"sexton/internal/metrics"
	"sexton/internal/problem"
	"sexton/internal/render"
	"sexton/internal/undo"
	"sexton/triggers"
)

// keptRows holds the total size and the greatest age of the rows that undo has saved in
// one database.
type keptRows struct {
	most int64
	Undo struct {
		Bytes            int64   `json:"bytes"`
		OldestAgeSeconds float64 `json:"oldest_age_seconds"`
	} `json:"undo"`
}

func (k keptRows) Print(w io.Writer) {
	_, _ = fmt.Fprintf(w, "\n%s; see sexton undo list\n",
		undo.Sized(k.Undo.Bytes, time.Duration(k.Undo.OldestAgeSeconds*float64(time.Second))))
}

func readKept(ctx context.Context, db database.Database, settings config.Undo) (Details, error) {
	kept := keptRows{most: int64(settings.MaxSize)}
	bytes, age, err := undo.Size(ctx, db.Pool, db.Names)
	kept.Undo.Bytes, kept.Undo.OldestAgeSeconds = bytes, age.Seconds()
	return kept, problem.Doing(err, "database %s", db.Name)
}

// keptGauges returns the metrics of the rows that undo has saved.
func keptGauges(b Backlog) []metrics.Sample {
	kept, on := b.Details.(keptRows)
	if !on {
		return nil
	}
	samples := []metrics.Sample{
		{Metric: metrics.UndoBytes, Value: float64(kept.Undo.Bytes), Labels: []string{b.Database}},
		{Metric: metrics.UndoAge, Value: kept.Undo.OldestAgeSeconds, Labels: []string{b.Database}},
	}
	if kept.most > 0 {
		samples = append(samples, metrics.Sample{
			Metric: metrics.UndoLimit, Value: float64(kept.most),
			Labels: []string{b.Database},
		})
	}
	return samples
}

// Personal reports the columns that undo saves and whose names suggest personal data.
func Personal(ctx context.Context, conn *pgx.Conn, settings config.Undo, cfg triggers.Config,
	tracked []triggers.Parent,
) (found []doctor.Finding, _ error) {
	if !settings.On() {
		return nil, nil
	}
	cascades, err := triggers.Cascades(ctx, conn, cfg, tracked)
	if err != nil {
		return nil, err
	}
	var tables []string
	for _, p := range tracked {
		if p.Undo == triggers.KeepsAll {
			tables = append(tables, pgx.Identifier{p.Schema, p.Table}.Sanitize())
		}
	}
	for _, child := range cfg.Undo.Children {
		tables = append(tables, pgx.Identifier{child.Schema, child.Name}.Sanitize())
	}
	for _, c := range cascades {
		if c.Uncovered == "" {
			tables = append(tables, c.Table)
		}
	}
	personal, err := undo.Personal(ctx, conn, cfg.TrackedSchema, tables, settings.ExcludeColumns)
	for _, one := range personal {
		found = append(found, doctor.One(problem.Info, "table "+one.Table,
			fmt.Sprintf("columns that look personal are kept for %s after a deletion: %s", settings.Keep,
				render.Listed(one.Columns)),
			"add to loose_foreign_keys.undo: exclude_columns: ["+strings.Join(one.Names, ", ")+"]")...)
	}
	return found, err
}

// Uncovered reports what `sexton undo` does not restore. This includes rows that native
// keys delete or change together with saved rows, and rows of tables with rules or
// inheriting tables. It also includes excluded columns, tables larger than max_size, and
// privileges that the role lacks. If role is empty, the privileges of the connected role
// are checked.
func Uncovered(
	ctx context.Context, conn *pgx.Conn, settings config.Undo, cfg triggers.Config, tracked []triggers.Parent,
	role string,
) (found []doctor.Finding, _ error) {
	if !settings.On() {
		return nil, nil
	}
	cascades, err := triggers.Cascades(ctx, conn, cfg, tracked)
	if err != nil {
		return nil, err
	}
	restored, privileges := []string{}, []string{}
	for _, c := range cascades {
		if c.Uncovered == "" {
			needs := restoresRows
			if c.Action != "CASCADE" {
				needs = changesRows
			}
			restored, privileges = append(restored, c.Table), append(privileges, needs)
			continue
		}
		found = append(found, doctor.One(problem.Warning, "table "+c.Table,
			fmt.Sprintf("sexton undo does not restore the rows that foreign key %s deletes or changes with rows of %s: %s",
				c.Constraint, c.Above, c.Uncovered),
			c.Fix)...)
	}
	var schemas, tables []string
	for _, p := range tracked {
		if p.Undo == triggers.KeepsAll {
			schemas, tables = append(schemas, p.Schema), append(tables, p.Table)
		}
	}
	parents := len(tables)
	for _, child := range cfg.Undo.Children {
		schemas, tables = append(schemas, child.Schema), append(tables, child.Name)
	}
	lacking, err := undo.Lacks(ctx, conn, schemas, tables, parents, settings.ExcludeColumns, settings.MaxSize)
	for _, one := range lacking {
		if len(one.Rules) > 0 {
			found = append(found, doctor.One(problem.Warning, "table "+one.Table,
				"its rows are not cleaned up: undo cannot keep rows of a table with rules ("+
					render.Listed(one.Rules)+")",
				"replace the rules with triggers, or disable undo")...)
		}
		if len(one.Heirs) > 0 {
			found = append(found, doctor.One(problem.Warning, "table "+one.Table,
				"sexton undo restores none of its rows: rows of tables that inherit from it are deleted too, and cannot be distinguished from its own: "+
					render.Listed(one.Heirs), "make them partitions of it to restore such rows")...)
		}
		if len(one.Excluded) > 0 {
			found = append(found, doctor.One(problem.Info, "table "+one.Table,
				"rows are restored with the default of "+render.Listed(one.Excluded)+
					", which loose_foreign_keys.undo.exclude_columns names", "")...)
		}
		if one.TooLarge > 0 {
			found = append(found, doctor.One(problem.Info, "table "+one.Table,
				fmt.Sprintf("its %.1f MB do not fit into loose_foreign_keys.undo.max_size, %.1f MB: "+
					"a deletion of most rows is kept in part, or waits (when_full)", float64(one.TooLarge)/1e6,
					float64(settings.MaxSize)/1e6),
				"raise loose_foreign_keys.undo.max_size to restore such deletions")...)
		}
	}
	if err != nil {
		return nil, err
	}
	for i, table := range tables {
		restored, privileges = append(restored, pgx.Identifier{schemas[i], table}.Sanitize()),
			append(privileges, "INSERT")
	}
	lacks, err := undo.MissingPrivileges(ctx, conn, restored, privileges, role)
	for _, one := range lacks {
		found = append(found, doctor.One(problem.Warning, "table "+one.Table,
			"sexton undo restores none of its rows: the role lacks "+one.Privileges, one.Grant)...)
	}
	if err != nil {
		return nil, err
	}
	may, grant, err := undo.MaySilence(ctx, conn, role)
	if err == nil && !may {
		found = append(found, doctor.One(problem.Info, "loose_foreign_keys.undo",
			"the role may not disable triggers: sexton undo fires the application's triggers, and --dry-run is refused",
			grant)...)
	}
	return found, err
}
