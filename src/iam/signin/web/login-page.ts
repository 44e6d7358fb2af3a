import type { RawAnswer } from '../../../transport/http/raw-route.ts'

const marks: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' }

function escaped(text: string): string {
  return text.replaceAll(/[&<>"']/g, (mark) => marks[mark] ?? '')
}

const paragraph = (text: string): string => `<p>${escaped(text)}</p>`

/** What every page says besides its content. A page loads nothing, runs nothing and is in no frame. */
function page(status: number, content: string, headers: Readonly<Record<string, string>> = {}): RawAnswer {
  return {
    status,
    headers: {
      'Content-Type': 'text/html; charset=utf-8',
      // Nothing is said of `form-action`: it would also stop the way from our form to the identity provider.
      'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
      'X-Frame-Options': 'DENY',
      'Referrer-Policy': 'no-referrer',
      ...headers,
    },
    body: `<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sign in</title></head><body><h1>Sign in</h1>${content}</body></html>\n`,
  }
}

/** A page for a person who signs in, where there is nobody to send the browser back to. */
export function loginPage(status: number, ...texts: readonly string[]): RawAnswer {
  return page(status, texts.map(paragraph).join(''))
}

/** What the confirmation page shows. */
export interface Confirmation {
  /** What the other device shows, too. */
  readonly code: string
  /** What the device is to get, in words, by what it is. */
  readonly facts: readonly (readonly [string, string])[]
  /** Where the answer is sent. */
  readonly action: string
  /** Comes back with the answer. */
  readonly request: string
  readonly cookie: string
}

/** Asks whether the person began the sign-in of another device themselves: else anybody could have their tokens who gets them to open a link (RFC 8628 5.4). */
export function confirmPage({ code, facts, action, request, cookie }: Confirmation): RawAnswer {
  const text = [
    paragraph('Another device asks to be signed in as you. Go on only if you began this yourself, just now, and the device shows this code:'),
    `<p><strong>${escaped(code)}</strong></p>`,
    `<dl>${facts.map(([name, value]) => `<dt>${escaped(name)}</dt><dd>${escaped(value)}</dd>`).join('')}</dl>`,
    paragraph('Did somebody send you here? Then they want to act in your name: do not go on.'),
  ].join('')
  const form = `<form method="post" action="${escaped(action)}"><input type="hidden" name="request" value="${escaped(request)}"><button name="answer" value="yes">I began this: sign in</button> <button name="answer" value="no">I did not begin this</button></form>`
  return page(200, text + form, { 'Set-Cookie': cookie })
}

/** Asks for the code that a device shows, and for the organisation whose people sign in. */
export function devicePage(asked: { userCode: string; action: string }): RawAnswer {
  const userCode = `<p><label>The code that your device shows: <input name="user_code" value="${escaped(asked.userCode)}" required autocomplete="off" maxlength="32"></label></p>`
  const provider = '<p><label>The name of your organisation, or the uid of its identity provider: <input name="idp_id" required maxlength="255"></label></p>'
  return page(200, `<form method="get" action="${escaped(asked.action)}">${userCode}${provider}<button>Go on</button></form>`)
}
