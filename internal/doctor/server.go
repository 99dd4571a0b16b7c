package doctor

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

// oldestVersion is PostgreSQL 14, as server_version_num.
const oldestVersion = 140_000

func version(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	var number int
	var text string
	err := tx.QueryRow(ctx, "SELECT pg_catalog.current_setting('server_version_num')::int, pg_catalog.current_setting('server_version')").Scan(&number, &text)
	if err != nil {
		return nil, fmt.Errorf("read server version: %w", err)
	}
	return judgeVersion(number, text), nil
}

func judgeVersion(number int, text string) []Finding {
	if number >= oldestVersion {
		return nil
	}
	return []Finding{{
		Severity: problem.Error, Object: "server_version", Message: "the server is PostgreSQL " + text + ", which is too old",
		Fix: "upgrade it to PostgreSQL 14 or newer",
	}}
}

// recovery asks whether the database can be written to.
func recovery(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	var standby, readOnly bool
	const sql = "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('default_transaction_read_only')::boolean"
	err := tx.QueryRow(ctx, sql).Scan(&standby, &readOnly)
	switch {
	case err != nil:
		return nil, fmt.Errorf("look whether the server is in recovery: %w", err)
	case standby:
		return []Finding{{
			Severity: problem.Error, Object: "pg_is_in_recovery", Message: "the server is in recovery: a standby can be read from only",
			Fix: "point url at the primary; with several hosts in it add target_session_attrs=read-write",
		}}, nil
	case readOnly:
		return []Finding{{
			Severity: problem.Error, Object: "default_transaction_read_only", Message: "transactions are read-only by default, so that no batch can write",
			Fix: "turn default_transaction_read_only off for the worker's role",
		}}, nil
	}
	return nil, nil
}

// statistics asks whether the role sees when other roles' transactions began.
func statistics(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	var member bool
	var role string
	const sql = "SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'), pg_catalog.format('%I', current_user)"
	if err := tx.QueryRow(ctx, sql).Scan(&member, &role); err != nil {
		return nil, fmt.Errorf("look up memberships: %w", err)
	}
	if member {
		return nil, nil
	}
	return []Finding{{
		Severity: problem.Warning, Object: role,
		Message: "the role does not see when the transactions of other roles began: children that are inserted late can only be waited for by the clock, " +
			"and old transactions and replicas that are far behind go unnoticed",
		Fix: "GRANT pg_read_all_stats TO " + role,
	}}, nil
}

//go:embed queries/autovacuum.sql
var autovacuumSQL string

// autovacuum looks for queue tables without vacuum. Nearly every row in them is a dead one before long.
func (t Target) autovacuum(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	const effect = "dead rows stay in the queue tables, and every look at them steps over those"
	var off string
	err := tx.QueryRow(ctx, `
		SELECT CASE
			WHEN NOT pg_catalog.current_setting('autovacuum')::boolean THEN 'autovacuum'
			WHEN NOT pg_catalog.current_setting('track_counts')::boolean THEN 'track_counts'
			ELSE ''
		END`).Scan(&off)
	if err != nil {
		return nil, fmt.Errorf("read settings of autovacuum: %w", err)
	}
	if off != "" {
		return []Finding{{
			Severity: problem.Warning, Object: off, Message: off + " is off: " + effect,
			Fix: "ALTER SYSTEM SET " + off + " = on; SELECT pg_catalog.pg_reload_conf()",
		}}, nil
	}
	found, err := query(ctx, tx, autovacuumSQL, []any{t.Database.Names.Jobs, t.Database.Names.Tracked}, func(row struct{ Table string }) Finding {
		return Finding{
			Severity: problem.Warning, Object: row.Table, Message: "autovacuum is off for this table: " + effect,
			Fix: "ALTER TABLE " + row.Table + " RESET (autovacuum_enabled)",
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read options of queue tables: %w", err)
	}
	return found, nil
}
