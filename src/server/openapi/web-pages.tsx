import type { HttpAnswer } from '../../transport/http/http-context.ts'
import { pageAnswer } from '../../transport/web/page.js'

/** An address of the API that needs no token. */
export interface PublicLink {
  readonly path: string
  readonly text: string
}

/** Returns the page at the root of the API, for people who open its address in a browser. */
export function startPage(links: readonly PublicLink[]): HttpAnswer {
  return pageAnswer(
    { status: 200, title: 'Taproot' },
    <>
      <p>This address serves the Taproot API.</p>
      <ul>
        {links.map(({ path, text }) => (
          <li>
            <a href={path}>{text}</a>
          </li>
        ))}
      </ul>
    </>,
  )
}

/**
 * The page of the API reference runs scripts, but only files of this server, and its scripts talk only to this server. Icons in its style sheet are `data:` URLs.
 */
const referencePolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
].join('; ')

/** Returns the page that shows an OpenAPI document. `start` is a script that fills the element `swagger-ui`. */
export function referencePage(of: { description: string; links: readonly PublicLink[]; style: string; library: string; start: string }): HttpAnswer {
  return pageAnswer(
    { status: 200, title: 'API reference', headers: { 'Content-Security-Policy': referencePolicy } },
    <>
      <link rel="stylesheet" href={of.style} />
      <nav>
        {of.links.map(({ path, text }) => (
          <>
            <a href={path}>{text}</a>{' '}
          </>
        ))}
      </nav>
      <div id="swagger-ui" data-description={of.description}></div>
      <script src={of.library}></script>
      <script src={of.start}></script>
    </>,
  )
}
