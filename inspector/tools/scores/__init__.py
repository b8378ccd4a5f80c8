"""Why a head looks there: its scores, by what wrote the query and the keys."""
