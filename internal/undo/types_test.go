package undo_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// values holds values of each kind of built-in type and of the application's own types.
var values = map[string][]string{
	"boolean": {"true"}, "bytea": {`'\x00ff10'`, "''"}, `"char"`: {"'x'"}, "name": {"'n'"},
	"bigint": {"-9223372036854775808"}, "smallint": {"-1"},
	"text": {"''", "'NULL'", `E'a"b\\\\c{},\n'`, "'{}'", "' '"}, "oid": {"4294967295"}, "tid": {"'(1,2)'"},
	"xid": {"'7'"}, "xid8": {"'7'"}, "cid": {"'7'"},
	"json": {`'{"b" : 1, "a":1, "a":2}'`, "'null'"}, "jsonb": {"'null'", `'{"a": [1, "x"]}'`}, "jsonpath": {"'$.a'"},
	"xml":   {"'<a b=\"1\"/>'"},
	"point": {"'(1.5,-2)'"}, "line": {"'{1,2,3}'"}, "lseg": {"'[(0,0),(1,1)]'"}, "path": {"'((0,0),(1,1))'"},
	"box":     {"'(1,1),(0,0)'"},
	"polygon": {"'((0,0),(1,1),(1,0))'"}, "circle": {"'<(0,0),1>'"}, "real": {"'-0'", "'NaN'", "3.4e38", "0.1"},
	"double precision": {"'-0'", "'-Infinity'", "0.1::float8 + 0.2::float8"}, "money": {"'-12.34'"},
	"macaddr":  {"'08:00:2b:01:02:03'"},
	"macaddr8": {"'08:00:2b:01:02:03:04:05'"}, "inet": {"'10.1.2.3/8'", "'::1'"}, "cidr": {"'10.0.0.0/8'"},
	"bpchar": {"'a  '"}, "character(5)": {"'a'"},
	"varchar(7)": {"'a  '", `E'\x02'`}, "varchar": {`E'a\x01b'`, "'b'"}, "varchar(9)": {"'a  '", "''", `E'x\x02'`},
	"date": {"'infinity'", "'4713-01-01 BC'", "'2024-02-29'"}, "time": {"'24:00'"},
	"timestamp":   {"'-infinity'", "'2024-02-29 12:00:00.000001'"},
	"timestamptz": {"'infinity'", "'2024-07-01 12:00:00.000001+05:30'"}, "interval": {"'1 year -2 days 03:04:05.678'"},
	"timetz": {"'12:00+05:30'"},
	"bit(5)": {"B'10101'"}, "bit varying": {"B'101'", "B''"},
	"numeric": {"1.500", "'NaN'", "123456789012345678901234567890.12"}, "numeric(5,2)": {"1.50"},
	"regclass": {"'pg_class'"}, "regtype": {"'int4'"}, "uuid": {"'00000000-0000-0000-0000-000000000001'"},
	"pg_lsn": {"'1/2'"}, "txid_snapshot": {"'1:2:'"},
	"tsvector": {`'a:1 ''b c'':2B'`}, "tsquery": {"'a & !b'"}, "int4range": {"'empty'", "'[1,)'"},
	"tstzrange":      {"'[2024-01-01,infinity]'"},
	"int4multirange": {"'{[1,2),[5,9)}'"}, "int2vector": {"'1 2'"}, "oidvector": {"'1 2'"},
	"int[]":  {"'[0:1]={1,NULL}'", "'{{1,2},{3,4}}'", "'{}'"},
	"text[]": {`'{"a,b","NULL",NULL,"\"x\\"}'`}, "timestamptz[]": {"'{infinity,2024-01-01 00:00:00+02}'"},
	"mood": {"'so ''so'''"}, "mood[]": {"'{glad}'"},
	"pair": {"ROW(1, 'a,\"b\"')::pair", "ROW(NULL, NULL)::pair"}, "pair[]": {"ARRAY[ROW(1, 'x')::pair, NULL]"},
	"positive": {"5"}, "words": {"'{a,b}'"},
}

// Every value is restored in the same binary form, independent of the settings of the
// deleting and the restoring session.
func TestValuesAreRestoredByteForByte(t *testing.T) {
	t.Parallel()
	var tables, yaml strings.Builder
	tables.WriteString(`CREATE TYPE mood AS ENUM ('glad', 'so ''so''');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN words AS text[];
CREATE TABLE parents (id bigint PRIMARY KEY);
INSERT INTO parents VALUES (1);
`)
	var names, binary []string
	for kind, of := range values {
		name := fmt.Sprintf("c%d", len(names))
		names = append(names, name)
		fmt.Fprintf(&tables,
			"CREATE TABLE %s (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, parent_id bigint, \"the \"\"100%%\"\" value\" %s, double bigint GENERATED ALWAYS AS (id * 2) STORED);\n"+
				"INSERT INTO %[1]s (parent_id) VALUES (1);\n", name, kind)
		for _, value := range of {
			fmt.Fprintf(&tables, "INSERT INTO %s (parent_id, \"the \"\"100%%\"\" value\") VALUES (1, %s);\n", name,
				value)
		}
		fmt.Fprintf(&yaml, "%s: [{table: parents, column: parent_id, on_delete: async_delete}]\n", name)
		binary = append(binary,
			fmt.Sprintf("SELECT '%s %s', id, double, md5(textin(record_out(t))::text), t::text FROM %[1]s AS t", name,
				strings.ReplaceAll(kind, "'", "''")))
	}
	b := setup(t, tables.String(), yaml.String(), "parents")
	selectAll := strings.Join(binary, " UNION ALL ") + " ORDER BY 1, 2"
	want := b.Rows(selectAll)
	b.Exec("BEGIN; SET LOCAL DateStyle = 'German, DMY'; SET LOCAL IntervalStyle = 'sql_standard'; SET LOCAL extra_float_digits = -2; SET LOCAL bytea_output = 'escape'; DELETE FROM parents; COMMIT")
	b.drain(t, 0)
	require.Empty(t, b.Rows(selectAll))
	report := b.restore(t, b.last(t).ID)
	require.Empty(t, report.Left)
	require.Equal(t, want, b.Rows(selectAll))
}
