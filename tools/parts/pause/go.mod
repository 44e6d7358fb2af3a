module taproot/parts/pause

go 1.25.0
