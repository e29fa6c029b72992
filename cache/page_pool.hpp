// The pool of KV pages: how many owners each has, and in which order free ones are reused. Knows
// nothing of content, memory or devices; the engine maps a page number to bytes.
//
// Free pages are one list, reused from its head. A page whose content is worth finding again
// ("cached") joins at the end and may be taken out by `share` until it is reused; any other joins
// at the head, so cached ones are given up last and least recently used first.
//
// Not thread-safe: the pool belongs to one owner.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"

namespace pumice {

using PageId = uint32_t;
inline constexpr PageId kNoPage = UINT32_MAX;

/// As a number of pages: no limit.
inline constexpr uint32_t kUnlimitedPages = UINT32_MAX;

class PagePool {
 public:
  /// All pages from the beginning; kUnlimitedPages is as `up_to`.
  explicit PagePool(uint32_t n_pages);
  /// Another page is made, up to `limit`, whenever none is free without giving up a cached one: a
  /// limit costs nothing until it is used.
  static PagePool up_to(uint32_t limit);

  bool unlimited() const { return limit_ == kUnlimitedPages; }
  uint32_t limit() const { return limit_; }
  /// Pages there are, so far.
  uint32_t n_pages() const { return static_cast<uint32_t>(pages_.size()); }
  uint32_t n_free() const { return n_free_; }
  bool can_take(uint64_t count) const {
    return unlimited() || count <= uint64_t{n_free_} + (limit_ - n_pages());
  }

  uint32_t references(PageId page) const { return pages_[page].references; }
  bool cached(PageId page) const { return pages_[page].cached; }

  /// The next free page, with one reference. It must exist (`can_take`). A cached page comes back
  /// still cached: the caller must forget its content.
  PageId take();

  /// The same of this page, which is free and not cached.
  void take(PageId page);

  /// Add a reference to a page in use or to a free cached page, which is then free no more.
  void share(PageId page);

  /// Drop one reference of each, last page first, so that a sequence's tail is reused first.
  void release(std::span<const PageId> pages);

  /// Say whether a page's content can be found again. A free page moves to its new place.
  void set_cached(PageId page, bool cached);

  /// `to`, which the caller alone has and which is not cached, gets all that `from` has:
  /// references, content, and its turn among free pages. `from` is then free and not cached.
  void replace(PageId from, PageId to);

  /// Have so many pages. Those that go, the last ones, must be free and not cached. Not of an
  /// unlimited pool.
  void resize(uint32_t n_pages);

  /// Every page is in the free list or referenced, never both, and the list is whole. Errors:
  /// kInternal naming the first bad page.
  Status check_integrity() const;

 private:
  struct Page {
    uint32_t references = 0;
    PageId previous = kNoPage;  // in the free list
    PageId next = kNoPage;
    bool cached = false;
  };

  PagePool() = default;
  PageId add_page();
  void link(PageId page);
  void unlink(PageId page);

  uint32_t limit_ = 0;
  std::vector<Page> pages_;
  PageId head_ = kNoPage;  // reused next
  PageId tail_ = kNoPage;
  uint32_t n_free_ = 0;
};

}  // namespace pumice
