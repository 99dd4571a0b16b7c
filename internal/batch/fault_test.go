package batch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/lease"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
)

func pgError(code string) *pgconn.PgError {
	return &pgconn.PgError{Code: code, Severity: "ERROR", Message: "no"}
}

func statementError(index int, err error) error {
	return fmt.Errorf("delete rows: %w", &batch.StatementError{Index: index, Err: err})
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	raised := func(code, where string) *pgconn.PgError {
		e := pgError(code)
		e.Where = where
		return e
	}
	severe := pgError("23514")
	severe.Severity = "FATAL"
	severeElsewhere := pgError("23514")
	severeElsewhere.Severity, severeElsewhere.SeverityUnlocalized = "ВАЖНО", "FATAL"
	locks := pgError("53200")
	locks.Hint = `You might need to increase "max_locks_per_transaction".`
	type example struct {
		err  error
		want batch.Verdict
	}
	pgtest.Each(t, map[string]example{
		"lost lease":                  {fmt.Errorf("%w: %w", lease.ErrLost, pgError("SX001")), batch.Fatal},
		"deadline":                    {statementError(0, context.DeadlineExceeded), batch.Fatal},
		"cancelled":                   {context.Canceled, batch.Fatal},
		"connection closed":           {errors.New("unexpected EOF"), batch.Fatal},
		"the batch's own frame":       {statementError(batch.Frame, pgError("23505")), batch.Fatal},
		"the server ends the session": {statementError(0, severe), batch.Fatal},
		"the server ends the session, in Russian": {statementError(0, severeElsewhere), batch.Fatal},
		"shutdown":                  {statementError(0, pgError("57P01")), batch.Fatal},
		"disk full":                 {statementError(0, pgError("53100")), batch.Fatal},
		"a statement's memory":      {statementError(0, pgError("53200")), batch.Row},
		"a statement's files":       {statementError(0, pgError("53400")), batch.Row},
		"the frame's memory":        {statementError(batch.Frame, pgError("53200")), batch.Fatal},
		"a lock for each partition": {statementError(0, locks), batch.Hopeless},
		"read only":                 {statementError(0, pgError("25006")), batch.Fatal},
		"no such table":             {statementError(0, pgError("42P01")), batch.Hopeless},
		"not allowed":               {statementError(0, pgError("42501")), batch.Hopeless},
		"corruption":                {statementError(0, pgError("XX001")), batch.Hopeless},
		"deadlock":                  {statementError(0, pgError("40P01")), batch.Conflict},
		"serialization":             {statementError(1, pgError("40001")), batch.Conflict},
		"statement timeout":         {statementError(0, pgError("57014")), batch.Timeout},
		"lock timeout":              {statementError(0, pgError("55P03")), batch.LockTimeout},
		"foreign key":               {statementError(0, pgError("23503")), batch.Row},
		"a check at commit":         {statementError(1, pgError("23514")), batch.Row},
		"a trigger's disk full":     {statementError(0, raised("53100", "PL/pgSQL function keep() line 3 at RAISE")), batch.Row},
		"a trigger's missing table": {statementError(0, raised("42P01", `SQL function "keep" statement 1`)), batch.Row},
		"a function in German":      {statementError(0, raised("42P01", "SQL-Funktion »keep« Anweisung 1")), batch.Row},
		"a function in Korean":      {statementError(0, raised("42P01", `SQL 함수 "keep"의 문 1`)), batch.Row},
		"a trigger in French": {
			statementError(0, raised("42P01", "fonction PL/pgSQL keep(), ligne 3 à instruction SQL")),
			batch.Row,
		},
		"a foreign key's query": {
			statementError(0, raised("42501", `SQL statement "DELETE FROM ONLY "public"."c" WHERE $1 OPERATOR(pg_catalog.=) "p""`)),
			batch.Hopeless,
		},
		"a foreign key's query in Swedish": {
			statementError(0, raised("42501", `SQL-sats: "DELETE FROM "public"."c" WHERE $1 OPERATOR(pg_catalog.=) "p""`)),
			batch.Hopeless,
		},
		"a deadlock in a trigger": {statementError(0, raised("40P01", "PL/pgSQL function keep() line 3 at RAISE")), batch.Conflict},
	}, func(t *testing.T, _ string, test example) {
		f := batch.Judge(test.err)
		require.Equal(t, test.want, f.Verdict)
		require.NotEmpty(t, f.Message)
	})
	require.Equal(t, batch.Fault{}, batch.Judge(nil))
}

func TestFaultHasTheServersMessage(t *testing.T) {
	t.Parallel()
	raised := pgError("P0001")
	raised.Message, raised.Where = "not this one", "PL/pgSQL function keep() line 3 at RAISE"
	f := batch.Judge(statementError(0, raised))
	require.Equal(t, batch.Fault{SQLState: "P0001", Message: "not this one", Stack: raised.Where, Verdict: batch.Row},
		f)
	require.Equal(t, "SQLSTATE P0001: not this one", f.Text())
	f.Table = "notes"
	require.Equal(t, "notes: SQLSTATE P0001: not this one", f.Text())
	referenced := pgError("23503")
	referenced.Detail = "Key (id)=(7) is still referenced."
	require.Equal(t, "SQLSTATE 23503: no: Key (id)=(7) is still referenced.", batch.Judge(statementError(0, referenced)).Text())
	whole := pgError("23514")
	whole.Detail = "Failing row contains (7, a secret)."
	require.Equal(t, "SQLSTATE 23514: no", batch.Judge(statementError(0, whole)).Text())
	require.Equal(t, "not found", batch.Fault{Message: "not found"}.Text())
}

func TestLocksAreReadFromRecordedErrors(t *testing.T) {
	t.Parallel()
	require.True(t, batch.LockIn("my issues: SQLSTATE 40P01: deadlock"))
	require.True(t, batch.LockIn("lock timeout (SQLSTATE 55P03)"))
	require.False(t, batch.LockIn("my issues: SQLSTATE 23514: no"))
}

func TestDuplicateInChecksTheTable(t *testing.T) {
	t.Parallel()
	likes, part := pgcatalog.Table{Schema: "public", Name: "likes"}, pgcatalog.Table{Schema: "parts", Name: "likes_1"}
	of := func(code string, table pgcatalog.Table) error {
		e := pgError(code)
		e.SchemaName, e.TableName = table.Schema, table.Name
		return statementError(0, e)
	}
	require.True(t, batch.DuplicateIn(of("23505", likes), likes))
	require.True(t, batch.DuplicateIn(of("23505", part), likes, part))
	require.True(t, batch.DuplicateIn(of("23P01", likes), likes), "an exclusion constraint")
	require.False(t, batch.DuplicateIn(of("23505", part), likes), "an error of a trigger on another table")
	require.False(t, batch.DuplicateIn(of("23503", likes), likes))
	require.False(t, batch.DuplicateIn(context.Canceled, likes))
	require.False(t, batch.DuplicateIn(nil, likes))
}

// The lock holder is added to the message of a lock timeout, but not to that of a
// deadlock, whose message names the other session already.
func TestLockFaultsNameTheBlocker(t *testing.T) {
	t.Parallel()
	for code, named := range map[string]bool{"55P03": true, "40P01": false, "40001": false, "23503": false} {
		err := statementError(0, pgError(code))
		by := batch.AddBlocker(err, "row locked by pid 1")
		require.ErrorIs(t, by, err)
		require.Equal(t, named, strings.HasSuffix(by.Error(), " (row locked by pid 1)"), code)
		require.Equal(t, named, strings.HasSuffix(batch.Judge(err).WithBlocker("row locked by pid 1").Message,
			" (row locked by pid 1)"), code)
		require.Equal(t, err, batch.AddBlocker(err, ""))
	}
}

func TestCountsAreBounded(t *testing.T) {
	t.Parallel()
	list := []batch.FaultCounts{}
	for n := range 30 {
		for range n {
			list = batch.CountFault(list, batch.Fault{
				Table: "notes", SQLState: "P0001", Message: fmt.Sprint(n),
				Stack: fmt.Sprint("line ", n),
			})
		}
	}
	require.Len(t, list, 20)
	require.Equal(t, batch.FaultCounts{Table: "notes", SQLState: "P0001", Message: "1", Count: 1}, list[0])
	require.Equal(t, batch.FaultCounts{Table: "notes", SQLState: "P0001", Message: "19", Count: 19}, list[18])
	var sum int64
	for _, c := range list {
		sum += c.Count
	}
	require.EqualValues(t, 29*30/2, sum, "further faults count for the last entry")
}
