package batch

import "github.com/jackc/pgx/v5"

// AgePath makes a connection's path so old that the next batch reads it again.
func AgePath(conn *pgx.Conn) {
	data := conn.PgConn().CustomData()
	if known, ok := data[pathKey].(foundPath); ok {
		data[pathKey] = foundPath{known.path, known.at.Add(-pathTTL)}
	}
}
