package batch

import "errors"

// Batches begin with row_security = off: a policy on a table that their statements name is
// an error, and no row is mistaken for deleted because a policy hides it. The
// application's triggers must run with the default, on, because they may read tables with
// policies. If the database has policies, EXPLAIN therefore precedes the statements. It
// raises the error, and it locks the tables until COMMIT, so that no policy is added.
const (
	policiesSQL   = "EXISTS (SELECT FROM pg_catalog.pg_policy)"
	policiesKey   = "sexton.batch.policies"
	policiesOnSQL = "SELECT pg_catalog.set_config('row_security', 'on', true)"
)

// explainFirst adds EXPLAIN statements to those of a batch if the database has policies. It
// returns false if the connection has not looked for policies yet.
func (s *Session) explainFirst(limits Limits, statements []Statement) (all []Statement, found bool) {
	if limits.Own || limits.Reads || len(statements) == 0 {
		return statements, true
	}
	policies, found := s.Conn.PgConn().CustomData()[policiesKey].(bool)
	if !policies {
		return statements, found
	}
	for _, one := range statements {
		all = append(all, Statement{SQL: "EXPLAIN " + one.SQL, Args: one.Args})
	}
	all = append(all, Statement{SQL: policiesOnSQL})
	return append(all, statements...), true
}

// afterExplain drops the results of the added statements. An error has the index of the
// statement that EXPLAIN failed on.
func afterExplain(added int, affected []int64, err error) ([]int64, error) {
	if failed, ok := errors.AsType[*StatementError](err); ok && added > 0 && failed.Index >= added-1 {
		failed.Index -= added
	}
	if err != nil {
		return nil, err
	}
	return affected[added:], nil
}
