/** Escapes a text for XML. */
function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
}

/** Attributes of an element. Numbers are written with one decimal. */
type Attributes = Readonly<Record<string, string | number>>

function attributes(values: Attributes): string {
  return Object.entries(values)
    .map(([name, value]) => ` ${name}="${typeof value === 'number' ? String(Number(value.toFixed(1))) : escaped(value)}"`)
    .join('')
}

/** Builds an SVG picture that is readable on light and dark pages. */
export class Svg {
  readonly #lines: string[] = []

  text(text: string, place: { x: number; y: number; class?: string; anchor?: 'start' | 'middle' | 'end' }): void {
    const { x, y, anchor = 'start' } = place
    this.#lines.push(
      `  <text${attributes({ x, y, 'text-anchor': anchor, ...(place.class === undefined ? {} : { class: place.class }) })}>${escaped(text)}</text>`,
    )
  }

  rect(values: { x: number; y: number; width: number; height: number; class: string; rx?: number }): void {
    this.#lines.push(`  <rect${attributes(values)}/>`)
  }

  line(values: { x1: number; y1: number; x2: number; y2: number; class: string }): void {
    this.#lines.push(`  <line${attributes(values)}/>`)
  }

  /** Returns the whole picture. */
  document(page: { width: number; height: number; title: string; description: string; styles: readonly string[]; darkStyles: readonly string[] }): string {
    const { width, height } = page
    const head = attributes({
      xmlns: 'http://www.w3.org/2000/svg',
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: 'img',
      'aria-labelledby': 'title desc',
    })
    const font = attributes({ 'font-family': "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif", 'font-size': 13 })
    return [
      `<svg${head}${font}>`,
      `  <title id="title">${escaped(page.title)}</title>`,
      `  <desc id="desc">${escaped(page.description)}</desc>`,
      '  <style>',
      ...page.styles.map((style) => `    ${style}`),
      '    @media (prefers-color-scheme: dark) {',
      ...page.darkStyles.map((style) => `      ${style}`),
      '    }',
      '  </style>',
      ...this.#lines,
      '</svg>',
      '',
    ].join('\n')
  }
}
