/** How wide each column has to be, in characters. */
export function columnWidths(rows: readonly (readonly string[])[]): readonly number[] {
  return (rows[0] ?? []).map((_, at) => Math.max(...rows.map((row) => row[at]?.length ?? 0)))
}

/** A row whose cells start where their columns do; a cell that is too long moves the others. */
export function alignedLine(cells: readonly string[], widths: readonly number[]): string {
  return cells
    .map((cell, at) => (at === cells.length - 1 ? cell : cell.padEnd(widths[at] ?? 0)))
    .join('  ')
    .trimEnd()
}
