package batch

import "github.com/jackc/pgx/v5"

// Collect is a Scan that replaces found by the rows.
func Collect[T any](found *[]T, to pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*found, err = pgx.CollectRows(rows, to)
		return err
	}
}

// One is a Scan that reads the only row, if there is one.
func One(into ...any) func(pgx.Rows) error {
	return Each(func() {}, into...)
}

// Each is a Scan that calls do with every row.
func Each(do func(), into ...any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, into, func() error { do(); return nil })
		return err
	}
}
