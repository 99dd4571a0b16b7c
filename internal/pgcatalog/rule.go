package pgcatalog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
)

// RuleProblem returns the reason why Sexton's functions must not call a function of the
// application, and the fix. The reason is "" if they may call it. A name without a schema
// is in the given schema. Without SECURITY DEFINER and a search_path of its own, the
// function would run with the privileges of Sexton's owner. A STRICT function returns
// NULL for a NULL argument without being called, and NULL allows the deletion.
func RuleProblem(ctx context.Context, db dbsqlc.DBTX, schema, name, result string,
	arguments ...string,
) (wrong, fix string, _ error) {
	schema, name = SplitName(schema, name)
	signature := fmt.Sprintf("%s.%s(%s)", Quote(schema), Quote(name),
		strings.ReplaceAll(strings.Join(arguments, ", "), "pg_catalog.", ""))
	var strict, definer, pinned bool
	var returned string
	err := db.QueryRow(ctx, text("rule"), schema, name, arguments).Scan(&strict, &definer, &pinned, &returned)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "the function " + signature + " does not exist", "create it, or correct the name", nil
	case err != nil:
		return "", "", fmt.Errorf("look up function %s: %w", signature, err)
	case returned != result:
		return fmt.Sprintf("the function %s returns %s instead of %s", signature, returned, result), "change it", nil
	case strict:
		return fmt.Sprintf("the function %s is STRICT: it would allow everything if an argument is NULL", signature),
			fmt.Sprintf("ALTER FUNCTION %s CALLED ON NULL INPUT", signature), nil
	case !definer || !pinned:
		return fmt.Sprintf("the function %s would run with the privileges of Sexton's owner", signature),
			fmt.Sprintf("ALTER FUNCTION %s SECURITY DEFINER SET search_path = pg_catalog, pg_temp", signature), nil
	}
	return "", "", nil
}

// SplitName splits a name that may be qualified into schema and name. If the name is not
// qualified, it returns the given schema.
func SplitName(schema, name string) (string, string) {
	if before, after, qualified := strings.Cut(name, "."); qualified {
		return before, after
	}
	return schema, name
}
