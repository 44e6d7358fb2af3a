module taproot/parts/osv-schema

go 1.25.0

require github.com/ossf/osv-schema v1.9.0 // indirect
