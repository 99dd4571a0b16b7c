package doctor

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

// tooShort are the timeouts that end sessions or statements from outside, with the shortest value that leaves
// Sexton alone and what happens below it. Batches set the first three for themselves; the rest of a pass
// does not.
var tooShort = []struct { //nolint:gochecknoglobals // a table
	name   string
	least  time.Duration
	effect string
}{
	{"statement_timeout", 10 * time.Second, "it ends what prepares and follows batches, such as the check of the definitions"},
	{"lock_timeout", time.Second, "leases and fences are given up that somebody else only holds for a moment"},
	{"idle_in_transaction_session_timeout", 10 * time.Second, "it ends sessions whose worker stands still for a moment"},
	{"idle_session_timeout", time.Minute, "it ends the connections that wait for notifications"},
	{"transaction_timeout", time.Minute, "it ends batches in the middle, as no batch can lift it"},
}

//go:embed queries/settings.sql
var settingsSQL string

func settings(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	names := make([]string, len(tooShort))
	for i, timeout := range tooShort {
		names[i] = timeout.name
	}
	rows, err := tx.Query(ctx, settingsSQL, names)
	if err != nil {
		return nil, fmt.Errorf("read timeouts: %w", err)
	}
	type row struct {
		Name           string
		Milliseconds   int64
		Source         string
		Role, Database string
	}
	set := map[string]row{}
	var r row
	_, err = pgx.ForEachRow(rows, []any{&r.Name, &r.Milliseconds, &r.Source, &r.Role, &r.Database}, func() error {
		set[r.Name] = r
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read timeouts: %w", err)
	}
	var found []Finding
	for _, timeout := range tooShort {
		r, isSet := set[timeout.name]
		value := time.Duration(r.Milliseconds) * time.Millisecond
		if !isSet || value >= timeout.least {
			continue
		}
		found = append(found, Finding{
			Severity: problem.Warning, Object: timeout.name,
			Message: fmt.Sprintf("%s is %s for role %s, less than %s: %s", timeout.name, value, r.Role, timeout.least, timeout.effect),
			Fix:     lift(timeout.name, r.Source, r.Role, r.Database),
		})
	}
	level, err := isolation(ctx, tx)
	return append(found, level...), err
}

// isolation asks for the level at which transactions begin. Batches and doors begin at the one that they need, single
// statements do not.
func isolation(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	const name, right = "default_transaction_isolation", "read committed"
	var value, source, role, database string
	const sql = `SELECT setting.reset_val, setting.source, pg_catalog.format('%I', current_user), pg_catalog.format('%I', pg_catalog.current_database())
FROM pg_catalog.pg_settings AS setting WHERE setting.name = $1`
	if err := tx.QueryRow(ctx, sql, name).Scan(&value, &source, &role, &database); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if value == right {
		return nil, nil
	}
	fix := lift(name, source, role, database)
	if strings.HasSuffix(fix, " = 0") {
		fix = fmt.Sprintf("ALTER ROLE %s IN DATABASE %s SET %s = '%s'", role, database, name, right)
	}
	return []Finding{{
		Severity: problem.Warning, Object: name, Fix: fix,
		Message: fmt.Sprintf("transactions of role %s begin at %s: statements on leases and jobs fail beside another session on the same rows", role, value),
	}}, nil
}

// lift says how to get rid of a setting, by where it comes from.
func lift(name, source, role, database string) string {
	switch source {
	case "client":
		return "remove " + name + " from the connection string"
	case "database user":
		return fmt.Sprintf("ALTER ROLE %s IN DATABASE %s RESET %s", role, database, name)
	case "user":
		return fmt.Sprintf("ALTER ROLE %s RESET %s", role, name)
	default:
		return fmt.Sprintf("ALTER ROLE %s IN DATABASE %s SET %s = 0", role, database, name)
	}
}

//go:embed queries/room.sql
var roomSQL string

// room asks whether a worker finds as many free connections as it may open.
func (t Target) room(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	rows, err := tx.Query(ctx, roomSQL)
	if err != nil {
		return nil, fmt.Errorf("count connections: %w", err)
	}
	var found []Finding
	var object, fix string
	var limit, taken int
	_, err = pgx.ForEachRow(rows, []any{&object, &fix, &limit, &taken}, func() error {
		need := Share{Connections: t.Connections}
		switch {
		case object == "max_connections" && len(t.Server.Databases) > 1:
			need = t.Server
		case strings.HasPrefix(object, "role ") && len(t.Role.Databases) > 1:
			need = t.Role
		}
		if limit-taken >= need.Connections {
			return nil
		}
		if object != "max_connections" {
			fix = fmt.Sprintf("%s %d", fix, taken+need.Connections)
		}
		together := ""
		if len(need.Databases) > 0 {
			together = " to databases " + strings.Join(need.Databases, ", ") + " together"
		}
		found = append(found, Finding{
			Severity: problem.Warning, Object: object,
			Message: fmt.Sprintf("of %d connections others have %d, and a worker may open %d%s", limit, taken, need.Connections, together),
			Fix:     fix + "; or lower jobs.max_workers",
		})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count connections: %w", err)
	}
	return found, nil
}
