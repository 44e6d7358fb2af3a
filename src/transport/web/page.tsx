import type { ComponentChildren } from 'preact'
import { renderToString } from 'preact-render-to-string'
import type { HttpAnswer } from '../http/http-context.ts'

/** Headers of every page. A page loads no resources, runs no scripts and cannot be shown in a frame. */
const pageHeaders = {
  'Content-Type': 'text/html; charset=utf-8',
  // There is no `form-action`, because it would also block the redirect from a form to an identity provider.
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
  'X-Frame-Options': 'DENY',
  'Referrer-Policy': 'no-referrer',
} as const

/** Returns a page with its title as the heading. All texts in `content` are escaped. */
export function pageAnswer(page: { status: number; title: string; headers?: Readonly<Record<string, string>> }, content: ComponentChildren): HttpAnswer {
  const html = renderToString(
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width" />
        <title>{page.title}</title>
      </head>
      <body>
        <h1>{page.title}</h1>
        {content}
      </body>
    </html>,
  )
  return { status: page.status, headers: { ...pageHeaders, ...page.headers }, body: `<!doctype html>\n${html}\n` }
}
