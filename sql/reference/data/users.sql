-- The first users are people and a few project bots. The last users are placeholders, one
-- for each row of import_placeholder_user_details.
INSERT INTO users (
    id, username, email, name, state, user_type, admin, private_profile, confirmed_at, last_activity_on, created_at, updated_at
)
SELECT
    n,
    login,
    login || CASE WHEN placeholder THEN '@noreply.example.com' ELSE '@example.com' END,
    CASE WHEN placeholder THEN 'Placeholder ' ELSE '' END || first || ' ' || last,
    CASE WHEN placeholder THEN 'active' WHEN n % 41 = 0 THEN 'blocked' WHEN n % 53 = 0 THEN 'deactivated' ELSE 'active' END,
    CASE WHEN placeholder THEN 15 WHEN n % 97 = 50 THEN 6 ELSE 0 END,
    n = 1,
    n % 19 = 0,
    CASE WHEN NOT placeholder THEN pg_temp.moment(n, @users, @today) END,
    CASE WHEN NOT placeholder THEN @today::timestamptz::date - pg_temp.pick(n, 4, 60)::integer END,
    pg_temp.moment(n, @users, @today) - interval '1 hour',
    pg_temp.moment(n, @users, @today)
FROM (
    SELECT
        n,
        n > @people AS placeholder,
        first,
        last,
        lower(first || '.' || last) || CASE WHEN n > @people THEN '_placeholder_' ELSE '' END || n AS login
    FROM generate_series(@first::bigint, @last::bigint) AS n
    CROSS JOIN LATERAL (
        SELECT
            (ARRAY['Ada', 'Amir', 'Anna', 'Ben', 'Carla', 'Chen', 'Dana', 'Emil', 'Fatima', 'Finn', 'Grace', 'Hana', 'Igor', 'Ines', 'Jonas', 'Kofi',
                'Lea', 'Luca', 'Maria', 'Mei', 'Nina', 'Noah', 'Olga', 'Omar', 'Priya', 'Ravi', 'Sara', 'Sven', 'Tariq', 'Uma', 'Yuki', 'Zoe'])[pg_temp.pick(n, 1, 32)],
            (ARRAY['Adeyemi', 'Ahmed', 'Bauer', 'Costa', 'Dubois', 'Eriksen', 'Fischer', 'Garcia', 'Haddad', 'Ito', 'Jansen', 'Kaya', 'Kim', 'Kowalski', 'Lopez', 'Meyer',
                'Mori', 'Nguyen', 'Novak', 'Okafor', 'Patel', 'Petrov', 'Rossi', 'Sato', 'Schmidt', 'Silva', 'Singh', 'Smith', 'Tanaka', 'Virtanen', 'Wang', 'Weber'])[pg_temp.pick(n, 2, 32)]
    ) AS called (first, last)
) AS new;
