package records

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/cli"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/groupdelete"
	"sexton/internal/installation"
	"sexton/internal/migrate"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// foreseen is the output of `sexton group delete --plan --json` and `sexton user delete --plan --json`.
type foreseen struct {
	GroupID int64 `json:"group_id,omitempty"`
	UserID  int64 `json:"user_id,omitempty"`
	// Moved, Deleted and Nullified count rows by table; nullified ones of groups, and those below a user's deleted rows, by table.column.
	Moved     map[string]int64 `json:"moved,omitempty"`
	Deleted   map[string]int64 `json:"deleted"`
	Nullified map[string]int64 `json:"nullified"`
	// Loose counts rows that go or change after a group, by loose foreign keys, by table or table.column; Elsewhere are definitions
	// whose children, in other databases, are not counted.
	Loose     map[string]int64 `json:"loose,omitempty"`
	Elsewhere int              `json:"elsewhere,omitempty"`
	// Rows is all of them, an estimate where Capped reports that counting stopped before the end.
	Rows   int64 `json:"rows"`
	Capped bool  `json:"capped"`
	// Forbidden says what stands in the way; empty where nothing was found.
	Forbidden []string `json:"forbidden"`
	// AboutSeconds is the time that it takes at RowsPerSecond, which is that of the last runs where Measured is set.
	AboutSeconds  float64 `json:"about_seconds"`
	RowsPerSecond float64 `json:"rows_per_second"`
	Measured      bool    `json:"measured"`
}

// assumedRate is the rows per second of a worker that has no runs to go by: what half of the time gives on small hardware.
const assumedRate = 2000

// rateSQL is how many rows a second the last runs of the kind $1 deleted or changed.
const rateSQL = `
SELECT coalesce(
    pg_catalog.sum(done.rows)::pg_catalog.float8 / greatest(pg_catalog.sum(extract(epoch FROM run.ended_at - run.started_at)), 0.001)::pg_catalog.float8,
    0)::pg_catalog.float8
FROM (
    SELECT runs.stats, runs.started_at, runs.ended_at FROM "sexton".runs
    WHERE runs.kind = $1 AND runs.changed AND runs.ended_at IS NOT NULL
    ORDER BY runs.started_at DESC
    LIMIT 20
) AS run
CROSS JOIN LATERAL (
    SELECT pg_catalog.sum(counted.value::bigint) AS rows
    FROM (VALUES ('moved'), ('deleted'), ('nullified')) AS part (name)
    CROSS JOIN LATERAL pg_catalog.jsonb_each_text(coalesce(run.stats -> part.name, '{}')) AS counted
) AS done`

// foreseeGroup looks at what a group's destruction would do. by may be 0.
func foreseeGroup(ctx context.Context, env *cli.Env, request groupRequest) error {
	all, _, err := env.ConnectForJob(ctx, riverjobs.AdjournedGroupDeletion)
	if err != nil {
		return err
	}
	defer all.Close()
	db := all.Jobs()
	plan, problems, err := groupdelete.Resolve(ctx, db.Pool, db.Names, all.Config.Has(migrate.GhostUsers))
	if err != nil {
		return err
	}
	if err := problems.Err(); err != nil {
		return err
	}
	defs, err := installation.LoadDefinitions(all.Config)
	if err != nil {
		return err
	}
	here := slices.DeleteFunc(slices.Clone(defs), func(d definitions.Definition) bool { return d.Database != "" && d.Database != db.Name })
	var loose *groupdelete.Plan
	if len(here) > 0 {
		if loose, err = groupdelete.ResolveLoose(ctx, db.Pool, db.Names, all.Config.Has(migrate.GhostUsers), here); err != nil {
			return err
		}
	}
	seen, err := groupdelete.Foresee(ctx, db.Pool, db.Names, plan, loose, request.ID)
	switch {
	case err != nil:
		return fmt.Errorf("plan the destruction of group %d: %w", request.ID, err)
	case !seen.Exists:
		return fmt.Errorf("there is no group %d", request.ID)
	}
	p := foreseen{GroupID: request.ID, Deleted: seen.Deleted, Nullified: seen.Nullified, Rows: seen.Rows, Capped: seen.Capped, Forbidden: []string{}}
	p.Loose, p.Elsewhere = seen.Loose, len(defs)-len(here)
	if seen.Forbidden != "" {
		p.Forbidden = append(p.Forbidden, seen.Forbidden)
	}
	if request.By != 0 {
		var may bool
		const rule = `SELECT coalesce("sexton".may_remove_group($1, $2), false)`
		if err := db.Pool.QueryRow(ctx, db.Names.Render(rule), request.By, request.ID).Scan(&may); err != nil {
			return fmt.Errorf("ask whether user %d may remove group %d: %w", request.By, request.ID, err)
		}
		if !may {
			p.Forbidden = append(p.Forbidden, fmt.Sprintf("user %d may not remove it", request.By))
		}
	}
	return printForeseen(ctx, env, db, riverjobs.GroupDestroy, &p)
}

// foreseeUser looks at what a user's deletion would do. Whether it is refused says the door itself, in a transaction that is
// rolled back.
func foreseeUser(ctx context.Context, env *cli.Env, request userDeletion) error {
	all, _, err := env.ConnectForJob(ctx, riverjobs.GhostUsers)
	if err != nil {
		return err
	}
	defer all.Close()
	db := all.Jobs()
	plan, problems, err := riverjobs.CheckGhostUsers(ctx, all.Config, db, db.Pool)
	if err != nil {
		return err
	}
	if err := problems.Err(); err != nil {
		return err
	}
	var exists bool
	const user = `SELECT EXISTS (SELECT FROM "public".users WHERE users.id OPERATOR(pg_catalog.=) $1)`
	if err := db.Pool.QueryRow(ctx, db.Names.Render(user), request.ID).Scan(&exists); err != nil {
		return fmt.Errorf("look for user %d: %w", request.ID, err)
	}
	if !exists {
		return fmt.Errorf("there is no user %d", request.ID)
	}
	seen, err := plan.Foresee(ctx, db.Pool, request.ID, request.Hard)
	if err != nil {
		return fmt.Errorf("plan the deletion of user %d: %w", request.ID, err)
	}
	p := foreseen{
		UserID: request.ID, Moved: seen.Moved, Deleted: seen.Deleted, Nullified: seen.Nullified,
		Rows: seen.Rows, Capped: seen.Capped, Forbidden: seen.Forbidden,
	}
	undone := errors.New("rolled back")
	err = pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'")
		if err == nil {
			_, err = tx.Exec(ctx, db.Names.Render(`SELECT "sexton".delete_user($1, $2, $3, $4)`),
				request.ID, request.By(), request.Hard, request.Groups)
		}
		if err == nil {
			err = undone
		}
		return err
	})
	if refused := refusal(err); refused != nil {
		p.Forbidden = append(p.Forbidden, refused.Error())
	} else if !errors.Is(err, undone) {
		return fmt.Errorf("ask whether user %d may be deleted: %w", request.ID, err)
	}
	return printForeseen(ctx, env, db, riverjobs.GhostUsers, &p)
}

// printForeseen adds how long it takes, and prints.
func printForeseen(ctx context.Context, env *cli.Env, db database.Database, kind string, p *foreseen) error {
	if err := db.Pool.QueryRow(ctx, db.Names.Render(rateSQL), kind).Scan(&p.RowsPerSecond); err != nil {
		return fmt.Errorf("look up the speed of %s: %w", kind, err)
	}
	if p.Measured = p.RowsPerSecond > 0; !p.Measured {
		p.RowsPerSecond = assumedRate
	}
	p.AboutSeconds = float64(p.Rows) / p.RowsPerSecond
	if env.JSON {
		return env.PrintJSON(p)
	}
	err := env.Table(func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "ROWS OF\tBECOME\tCOUNT")
		for _, part := range []struct {
			what string
			rows map[string]int64
		}{
			{"the ghost user's", p.Moved},
			{"deleted", p.Deleted},
			{"without the reference", p.Nullified},
			{"deleted or changed later, by loose foreign keys", p.Loose},
		} {
			for _, table := range slices.Sorted(maps.Keys(part.rows)) {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%d\n", table, part.what, part.rows[table])
			}
		}
	})
	if err != nil {
		return err
	}
	more, speed := "", "at an assumed "
	if p.Capped {
		more = "more than was counted: about "
	}
	if p.Measured {
		speed = "at the last runs' "
	}
	env.Printf("\n%s%s, about %s %s%.0f rows a second\n", more, words.Counted(p.Rows, "row"),
		time.Duration(p.AboutSeconds*float64(time.Second)).Round(time.Second), speed, p.RowsPerSecond)
	if p.Elsewhere > 0 {
		env.Printf("not counted: children in other databases, of %s\n", words.Counted(p.Elsewhere, "definition"))
	}
	for _, reason := range p.Forbidden {
		env.Printf("forbidden: %s\n", reason)
	}
	return nil
}
