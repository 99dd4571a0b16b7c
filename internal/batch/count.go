package batch

import "sexton/internal/pgcatalog"

// A run counts in its process what it has changed, and a killed process takes that along. So each batch also adds its figures to
// sexton.run_counts, in its own transaction: sexton.run_counts holds only committed figures. The client cannot say them, as the whole
// transaction is one flush, and a statement that counts its own rows by RETURNING takes half as long again. So the server's own
// counters of the transaction are asked before and behind; they need track_counts, as autovacuum does.

// Figure is a number in the statistics of a run: a field, and for a field with one number per table the table's label.
type Figure struct {
	Field, Label string
	// Table is the OID of the one whose rows a statement changes.
	Table uint32
}

const (
	changedSQL = `(pg_catalog.pg_stat_get_xact_tuples_deleted($1::pg_catalog.oid)
    OPERATOR(pg_catalog.+) pg_catalog.pg_stat_get_xact_tuples_updated($1::pg_catalog.oid))`
	beforeSQL = "SELECT pg_catalog.set_config('sexton.before', " + changedSQL + "::pg_catalog.text, true)"
	behindSQL = `SELECT "sexton".count_rows($2::pg_catalog.text, $3::pg_catalog.text,
    ` + changedSQL + ` OPERATOR(pg_catalog.-) pg_catalog.current_setting('sexton.before')::pg_catalog.int8)`
)

// CountRows is the SQL expression that adds rows, an expression of type bigint, to a figure of the run, and returns them. Field and label are
// expressions of type text.
func CountRows(names pgcatalog.Names, field, label, rows string) string {
	return names.Render(`"sexton".count_rows(`) + field + ", " + label + ", " + rows + ")"
}

// counting puts statements that count its rows around each statement with a figure, where there is a run to count for.
func (s *Session) counting(statements []Statement) []Statement {
	if statements == nil {
		return nil
	}
	all := make([]Statement, 0, len(statements)+2)
	for i, statement := range statements {
		statement.at = i
		figure := statement.Counts
		if figure == nil || s.Fence.Run() == 0 {
			all = append(all, statement)
			continue
		}
		all = append(all, Statement{SQL: beforeSQL, Args: []any{figure.Table}, at: i, aside: true}, statement,
			Statement{SQL: s.Names.Render(behindSQL), Args: []any{figure.Table, figure.Field, figure.Label}, at: i, aside: true})
	}
	return all
}
