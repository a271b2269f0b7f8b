(** When an exchange can be one dense all-to-all over disjoint groups of devices. Beyond the paper. *)
From mathcomp Require Import all_ssreflect zify.
From Redistrib Require Import Spec.Rounds.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Section Theorems.
Variables (D K P : finType) (before after : D -> K) (chunk : D -> P).
Local Notation holders := (holders before chunk).

Theorem dense_only_if_agree (G : finType) (group : D -> G) : dense before after chunk group -> agree before after chunk.
Proof.
move=> [cells one]; have ba d : before d = after d by apply: cells.
split=> //.
suff le d p p' : #|holders (before d) p| <= #|holders (before d) p'| by move=> d p p'; apply/eqP; rewrite eqn_leq !le.
have ex e : exists e', (group e' == group e) && (chunk e' == p').
  by have [e' [g1 c1 _]] := one e p'; exists e'; rewrite g1 c1 !eqxx.
pose h e := xchoose (ex e).
have hP e : group (h e) = group e /\ chunk (h e) = p' by have /andP [/eqP -> /eqP ->] := xchooseP (ex e).
rewrite -(card_in_imset (f := h) (D := mem (holders (before d) p))).
  apply: subset_leq_card; apply/subsetP=> x /imsetP [e]; rewrite inE => /andP [/eqP be _] ->.
  have [gh ch] := hP e; rewrite inE ch eqxx andbT; apply/eqP.
  by rewrite -be (cells _ _ gh) ba.
move=> e e'; rewrite !inE => /andP [_ /eqP ce] /andP [_ /eqP ce'] E.
have [ge _] := hP e; have [ge' _] := hP e'; have gee : group e = group e' by rewrite -ge E ge'.
by have [x [_ _ u]] := one e p; rewrite (u e) // (u e').
Qed.

(** The groups: within each cell, the i-th holders of all the chunks. *)
Theorem dense_if_agree : agree before after chunk ->
  exists group : D -> (K * 'I_#|D|.+1)%type, dense before after chunk group.
Proof.
move=> [ba even].
pose fib d := enum (holders (before d) (chunk d)).
have inf d : d \in fib d by rewrite mem_enum inE !eqxx.
have idx d : index d (fib d) < #|D|.+1.
  by rewrite ltnS; apply: leq_trans (index_size _ _) _; rewrite -cardE max_card.
exists (fun d => (before d, Ordinal (idx d))).
have same d d' : (before d, Ordinal (idx d)) = (before d', Ordinal (idx d')) ->
    before d = before d' /\ index d (fib d) = index d' (fib d') by case.
split=> [d d' /same [-> _]|d p]; first exact: ba.
pose l := enum (holders (before d) p).
have szl : size l = size (fib d) by rewrite -!cardE; apply: even.
have il : index d (fib d) < size l by rewrite szl index_mem.
pose d' := nth d l (index d (fib d)).
have : d' \in l by apply: mem_nth.
rewrite mem_enum inE => /andP [/eqP bd' /eqP cd'].
have fd' : fib d' = l by rewrite /fib bd' cd'.
have id' : index d' (fib d') = index d (fib d) by rewrite fd' index_uniq // enum_uniq.
exists d'; split=> //.
  by congr pair; [exact: bd' | apply: val_inj].
move=> e /same [be ie] ce; have fe : fib e = l by rewrite /fib be ce.
by rewrite /d' -ie fe nth_index // -fe inf.
Qed.
End Theorems.
