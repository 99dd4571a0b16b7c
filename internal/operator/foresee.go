package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/drain"
	"sexton/internal/fault"
	"sexton/internal/groupdelete"
	"sexton/internal/installation"
	"sexton/internal/migrate"
	riverjobs "sexton/river_jobs"
)

// Foreseen is the output of `sexton group delete --plan --json` and `sexton user delete --plan --json`.
type Foreseen struct {
	GroupID int64 `json:"group_id,omitempty"`
	UserID  int64 `json:"user_id,omitempty"`
	// Moved, Deleted and Nullified count rows by table; nullified ones of groups, and those below a user's deleted rows, by table.column.
	Moved     map[string]int64 `json:"moved,omitempty"`
	Deleted   map[string]int64 `json:"deleted"`
	Nullified map[string]int64 `json:"nullified"`
	// Loose counts rows that go or change after it, by loose foreign keys, by table or table.column; Elsewhere are definitions
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

// UserDeletion is a request to delete a user. By is the user on whose behalf it is made, if one is named.
type UserDeletion struct {
	ID           int64
	By           *int64
	Hard, Groups bool
}

// ForeseeGroup looks at what a group's destruction would do. by, the user on whose behalf it is done, may be 0.
func ForeseeGroup(ctx context.Context, all *installation.Connections, id, by int64) (*Foreseen, error) {
	db, ghosts := all.Jobs(), all.Config.Has(migrate.GhostUsers)
	plan, problems, err := groupdelete.Resolve(ctx, db.Pool, db.Names, ghosts)
	if err == nil {
		err = problems.Err()
	}
	if err != nil {
		return nil, err
	}
	here, elsewhere, err := looseIn(all, db)
	if err != nil {
		return nil, err
	}
	var loose *groupdelete.Plan
	if len(here) > 0 {
		if loose, err = groupdelete.ResolveLoose(ctx, db.Pool, db.Names, ghosts, here); err != nil {
			return nil, err
		}
	}
	seen, err := groupdelete.Foresee(ctx, db.Pool, db.Names, plan, loose, id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("plan the destruction of group %d: %w", id, err)
	case !seen.Exists:
		return nil, fmt.Errorf("there is no group %d", id)
	}
	p := &Foreseen{
		GroupID: id, Deleted: seen.Deleted, Nullified: seen.Nullified, Rows: seen.Rows, Capped: seen.Capped, Forbidden: []string{},
		Loose: seen.Loose, Elsewhere: elsewhere,
	}
	if seen.Forbidden != "" {
		p.Forbidden = append(p.Forbidden, seen.Forbidden)
	}
	if by != 0 {
		var may bool
		const rule = `SELECT coalesce("sexton".may_remove_group($1, $2), false)`
		if err := db.Pool.QueryRow(ctx, db.Names.Render(rule), by, id).Scan(&may); err != nil {
			return nil, fmt.Errorf("ask whether user %d may remove group %d: %w", by, id, err)
		}
		if !may {
			p.Forbidden = append(p.Forbidden, fmt.Sprintf("user %d may not remove it", by))
		}
	}
	return p, p.time(ctx, db, riverjobs.GroupDestroy)
}

// looseIn are the definitions of the loose foreign keys whose children are in a database; elsewhere counts the others.
func looseIn(all *installation.Connections, db database.Database) (loose []drain.Loose, elsewhere int, err error) {
	defs, err := installation.LoadDefinitions(all.Config)
	for _, d := range defs {
		if d.Database != "" && d.Database != db.Name {
			elsewhere++
			continue
		}
		named := func(name definitions.Name) [2]string {
			return [2]string{cmp.Or(name.Schema, db.Names.Tracked), name.Table}
		}
		one := drain.Loose{Child: named(d.Child), Parent: named(d.Parent), Columns: d.Columns, Targets: d.ParentColumns, Action: drain.Nullify}
		if d.OnDelete == definitions.Delete {
			one.Action = drain.Remove
		}
		for _, c := range d.Conditions {
			one.Only = append(one.Only, [2]string{c.Column, c.Value})
		}
		loose = append(loose, one)
	}
	return loose, elsewhere, err
}

// ForeseeUser looks at what a user's deletion would do. Whether it is refused says the door itself, in a transaction that is
// rolled back.
func ForeseeUser(ctx context.Context, all *installation.Connections, request UserDeletion) (*Foreseen, error) {
	db := all.Jobs()
	plan, problems, err := riverjobs.CheckGhostUsers(ctx, all.Config, db, db.Pool)
	if err == nil {
		err = problems.Err()
	}
	if err != nil {
		return nil, err
	}
	var exists bool
	const user = `SELECT EXISTS (SELECT FROM "public".users WHERE users.id OPERATOR(pg_catalog.=) $1)`
	if err := db.Pool.QueryRow(ctx, db.Names.Render(user), request.ID).Scan(&exists); err != nil {
		return nil, fmt.Errorf("look for user %d: %w", request.ID, err)
	}
	if !exists {
		return nil, fmt.Errorf("there is no user %d", request.ID)
	}
	loose, elsewhere, err := looseIn(all, db)
	if err != nil {
		return nil, err
	}
	seen, err := plan.Foresee(ctx, db.Pool, request.ID, request.Hard, loose...)
	if err != nil {
		return nil, fmt.Errorf("plan the deletion of user %d: %w", request.ID, err)
	}
	p := &Foreseen{
		UserID: request.ID, Moved: seen.Moved, Deleted: seen.Deleted, Nullified: seen.Nullified,
		Rows: seen.Rows, Capped: seen.Capped, Forbidden: seen.Forbidden, Loose: seen.Loose, Elsewhere: elsewhere,
	}
	undone := errors.New("rolled back")
	err = pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'")
		if err == nil {
			_, err = tx.Exec(ctx, db.Names.Render(DeleteUserSQL), request.ID, request.By, request.Hard, request.Groups)
		}
		if err == nil {
			err = undone
		}
		return err
	})
	if refused := fault.Refusal(err); refused != nil {
		p.Forbidden = append(p.Forbidden, refused.Error())
	} else if !errors.Is(err, undone) {
		return nil, fmt.Errorf("ask whether user %d may be deleted: %w", request.ID, err)
	}
	return p, p.time(ctx, db, riverjobs.GhostUsers)
}

// DeleteUserSQL is the door of the database for users: the id, on whose behalf, whether contributions go as well, and groups.
const DeleteUserSQL = `SELECT "sexton".delete_user($1, $2, $3, $4)`

// assumedRate is the rows per second of a worker that has no runs to go by: what half of the time gives on small hardware.
const assumedRate = 2000

// time fills in how long it takes.
func (p *Foreseen) time(ctx context.Context, db database.Database, kind string) error {
	if err := db.Pool.QueryRow(ctx, db.Names.Render(sqlText("rate")), kind).Scan(&p.RowsPerSecond); err != nil {
		return fmt.Errorf("look up the speed of %s: %w", kind, err)
	}
	if p.Measured = p.RowsPerSecond > 0; !p.Measured {
		p.RowsPerSecond = assumedRate
	}
	p.AboutSeconds = float64(p.Rows) / p.RowsPerSecond
	return nil
}
